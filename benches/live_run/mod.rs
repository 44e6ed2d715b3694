//! A run that grows: so many spans a second, in steps, written by whoever calls it.

use std::{
    error::Error,
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use stepscope_traces::{
    Correlation, FIRST_NAME, MemoryCategory, MemoryEvent, MemoryOperation, NameId, Nanos, Phase, Rank, RankInfo,
    RankWriter, RunInfo, Span, SpanKind, Step, Stream, now,
};

pub(crate) const SPANS_A_SECOND: usize = 200_000;
const RANKS: u32 = 8;
const SPANS_OF_A_STEP: usize = 2_500;
const FLUSH: Duration = Duration::from_millis(100);

/// Writes a run, as fast as it is to be, and says which step it has come to.
pub(crate) fn write(run: &Path) -> Result<(), Box<dyn Error>> {
    let mut info = RunInfo::of_this_process("live");
    info.world_size = Some(RANKS);
    info.create(run)?;
    let mut writers = (0..RANKS)
        .map(|rank| RankWriter::create(run, RankInfo::of_this_process(Rank(rank))))
        .collect::<Result<Vec<_>, _>>()?;
    for writer in &mut writers {
        (0..40).try_for_each(|name| writer.push_name(NameId(FIRST_NAME.0 + name), &format!("kernel_{name}")))?;
    }
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "begun")?;
    stdout.flush()?;
    let (began, origin) = (Instant::now(), now().0);
    let length = 1_000_000_000 * i64::from(RANKS) / SPANS_A_SECOND as i64;
    let (mut written, mut told) = (0_usize, None);
    loop {
        thread::sleep(FLUSH);
        let due = (began.elapsed().as_secs_f64() * SPANS_A_SECOND as f64) as usize / RANKS as usize;
        for writer in &mut writers {
            for index in written..due {
                writer.push_span(&span(index, origin, length))?;
                annotation(index, origin, length).map_or(Ok(()), |span| writer.push_span(&span))?;
                memory_event(index, origin, length).map_or(Ok(()), |event| writer.push_memory(&event))?;
            }
            writer.flush()?;
        }
        written = due;
        let step = due.saturating_sub(1) / SPANS_OF_A_STEP;
        if told != Some(step) {
            writeln!(stdout, "{step}")?;
            stdout.flush()?;
            told = Some(step);
        }
    }
}

fn span(index: usize, origin: i64, length: i64) -> Span {
    let kind = if index % 10 == 9 { SpanKind::AllReduce } else { SpanKind::Kernel };
    let name = NameId(FIRST_NAME.0 + (index % 40) as u32);
    let start = Nanos(origin + index as i64 * length);
    Span {
        step: Some(Step((index / SPANS_OF_A_STEP) as i32)),
        stream: Some(Stream(u32::from(kind != SpanKind::Kernel))),
        phase: Some(if index % SPANS_OF_A_STEP < SPANS_OF_A_STEP / 3 { Phase::Forward } else { Phase::Backward }),
        correlation: Some(Correlation(index as u64)),
        ..Span::new(kind, name, start, Nanos(length * 9 / 10))
    }
}

/// Every tenth span takes memory, or gives back what another took.
fn memory_event(index: usize, origin: i64, length: i64) -> Option<MemoryEvent> {
    let op = match index % 20 {
        0 => MemoryOperation::Alloc,
        10 => MemoryOperation::Free,
        _ => return None,
    };
    Some(MemoryEvent {
        time_ns: Nanos(origin + index as i64 * length),
        op,
        address: 1 + (index / 20) as u64,
        bytes: Some(1 << 20),
        category: Some(MemoryCategory::Activations),
        step: Some(Step((index / SPANS_OF_A_STEP) as i32)),
        phase: Some(Phase::Forward),
        layer: None,
        pool: None,
        site: None,
    })
}

/// The annotation of a step, after its last span.
fn annotation(index: usize, origin: i64, length: i64) -> Option<Span> {
    let last = (index + 1).is_multiple_of(SPANS_OF_A_STEP);
    let first = (index + 1 - SPANS_OF_A_STEP.min(index + 1)) as i64;
    let step = Some(Step((index / SPANS_OF_A_STEP) as i32));
    let span =
        Span::new(SpanKind::Step, FIRST_NAME, Nanos(origin + first * length), Nanos(length * SPANS_OF_A_STEP as i64));
    last.then_some(Span { step, ..span })
}
