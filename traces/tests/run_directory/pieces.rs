use stepscope_traces::{MemoryEvent, RankData, Run, Span, Window, synthetic::Recipe};

#[test]
fn pieces_are_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    Recipe { steps: 2000, ..Recipe::default() }.write(&path).unwrap();
    let rank = &Run::open(&path).unwrap().ranks[0];
    let (whole, loss) = rank.read(Window::ALL).unwrap();
    let (mut spans, mut memory, mut pieces) = (Vec::<Span>::new(), Vec::<MemoryEvent>::new(), 0);
    let take = |data: &RankData, piece: &stepscope_traces::Spans| {
        assert!(piece.rows().all(|span| data.names.get(span.name).is_some()), "names are there first");
        pieces += 1;
        spans.extend(piece.rows());
    };
    let (rest, report) = rank.read_in_pieces(Window::ALL, take, |piece| memory.extend(piece.rows())).unwrap();
    assert!(pieces > 1);
    assert_eq!(loss, report.loss);
    assert!(spans.iter().copied().eq(whole.spans.rows()));
    assert!(memory.iter().copied().eq(whole.memory.rows()));
    assert!(rest.counters.rows().eq(whole.counters.rows()));
}
