use std::collections::BTreeMap;

use stepscope_plan::Axis;
use stepscope_traces::{
    Counter, MemoryCategory, MemoryOperation, Nanos, Rank, Run, SpanKind, Stage, Window,
    synthetic::{Clocks, Pipeline, Recipe, Schedule, Truth},
};

fn write(recipe: &Recipe) -> (tempfile::TempDir, Run, Truth) {
    let directory = tempfile::tempdir().unwrap();
    let truth = recipe.write(&directory.path().join("run")).unwrap();
    let run = Run::open(&directory.path().join("run")).unwrap();
    (directory, run, truth)
}

#[test]
fn the_files_hold_as_much_as_the_truth_says() {
    let pipeline = Pipeline { stages: 2, schedule: Schedule::Gpipe, chunks: 1, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 2, pipeline: Some(pipeline), ..Recipe::default() };
    let (_directory, run, truth) = write(&recipe);
    assert_eq!(run.ranks.len(), 4);
    for (rank, truth) in run.ranks.iter().zip(&truth.ranks) {
        let (data, loss) = rank.read(Window::ALL).unwrap();
        assert!(loss.is_none());
        assert_eq!(data.spans.len() as u64, truth.spans);
        assert_eq!(data.memory.len() as u64, truth.memory_events);
        assert_eq!(data.counters.len() as u64, truth.counter_samples);
        assert_eq!(
            data.spans.kind.iter().filter(|kind| *kind == SpanKind::Kernel || kind.is_communication()).count() as u64,
            truth.kernels
        );
        assert_eq!(rank.info.stage, truth.stage);
        assert!(data.spans.stage.iter().all(|stage| stage == truth.stage));
        assert!(data.spans.name.iter().all(|name| data.names.get(name).is_some()));
        let losses = data.counters.rows().filter(|sample| sample.counter == Counter::Loss.id());
        assert!(losses.map(|sample| sample.value).eq(truth.steps.iter().map(|step| step.loss)));
    }
    assert_eq!(truth.ranks[3].stage, Some(Stage(1)));
}

#[test]
fn who_talks_is_known() {
    let pipeline = Pipeline { stages: 2, schedule: Schedule::Gpipe, chunks: 1, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 3, pipeline: Some(pipeline), ..Recipe::default() };
    let (_directory, run, _) = write(&recipe);
    assert_eq!(run.info.layout, Some(recipe.layout()));
    let ranks = |axis| run.info.groups.iter().filter(move |group| group.axis == axis).map(|group| &group.ranks[..]);
    assert!(ranks(Axis::Data).eq([[0, 1, 2].map(Rank), [3, 4, 5].map(Rank)]));
    assert!(ranks(Axis::Pipeline).eq([[0, 3].map(Rank), [1, 4].map(Rank), [2, 5].map(Rank)]));
    for rank in &run.ranks {
        let spans = rank.read(Window::ALL).unwrap().0.spans;
        for (kind, group) in spans.kind.iter().zip(spans.group.iter()) {
            let axis = match kind {
                SpanKind::AllReduce => Some(Axis::Data),
                SpanKind::Send | SpanKind::Receive => Some(Axis::Pipeline),
                _ => None,
            };
            let mut known = run.info.groups.iter().filter(|known| Some(known.group) == group);
            let known = known.next().map(|known| (known.axis, known.ranks.contains(&rank.info.rank)));
            assert_eq!(known, axis.map(|axis| (axis, true)), "{kind:?}");
        }
    }
}

#[test]
fn what_is_said_has_a_number() {
    let pipeline = Pipeline { stages: 3, schedule: Schedule::Interleaved, chunks: 2, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 2, micro_batches: 3, pipeline: Some(pipeline), ..Recipe::default() };
    let (_directory, run, _) = write(&recipe);
    let mut numbers = BTreeMap::<_, Vec<(Rank, Nanos)>>::new();
    for rank in &run.ranks {
        for span in rank.read(Window::ALL).unwrap().0.spans.rows() {
            assert_eq!(span.kind.is_communication(), span.sequence.is_some());
            if let Some(sequence) = span.sequence {
                numbers.entry((span.group, sequence)).or_default().push((rank.info.rank, span.interval().1));
            }
        }
    }
    assert_eq!(numbers.len(), 3 * 4 * 4 + 2 * 4 * 3 * 2 * 5, "each stage's gradients, and each replica's messages");
    for parts in numbers.values() {
        assert!(matches!(parts[..], [(one, end), (other, same)] if one != other && end == same), "{parts:?}");
    }
}

/// Coverage nanosecond by nanosecond, which nobody would do in earnest.
#[test]
fn the_figures_are_those_of_the_files() {
    let recipe = Recipe {
        replicas: 2,
        steps: 2,
        micro_batches: 1,
        layers: 2,
        kernels_per_layer: 3,
        waiting: 0.2,
        clocks: Clocks { largest_offset: Nanos(1 << 30), largest_drift: 50_000, ..Clocks::default() },
        ..Recipe::default()
    };
    let (_directory, run, truth) = write(&recipe);
    for (rank, truth) in run.ranks.iter().zip(&truth.ranks) {
        let (data, _) = rank.read(Window::ALL).unwrap();
        let spans: Vec<_> = data.spans.rows().filter(|span| !span.kind.is_annotation()).collect();
        for (index, step) in truth.steps.iter().enumerate() {
            let own = spans.iter().filter(|span| span.step == Some(step.step));
            assert_eq!(own.map(|span| span.start_ns).min(), Some(step.start));
            let end = truth.steps.get(index + 1).map(|next| next.start);
            let end = end.unwrap_or_else(|| spans.iter().map(|span| span.interval().1).max().unwrap());
            assert_eq!(step.figures.span, end - step.start);
            let mut covered = vec![[false; 3]; (end - step.start).0 as usize];
            for span in &spans {
                let (from, to) = span.interval();
                let class = if span.kind.is_communication() { 1 } else { 2 * usize::from(span.kind.is_copy()) };
                for time in from.0.max(step.start.0)..to.0.min(end.0) {
                    covered[(time - step.start.0) as usize][class] = true;
                }
            }
            let count = |wanted: fn(&[bool; 3]) -> bool| Nanos(covered.iter().filter(|at| wanted(at)).count() as i64);
            let figures = step.figures;
            assert_eq!(figures.compute, count(|at| at[0]));
            assert_eq!(figures.communication, count(|at| at[1]));
            assert_eq!(figures.overlapped_communication, count(|at| at[0] && at[1]));
            assert_eq!(figures.copy, count(|at| at[2]));
            assert_eq!(figures.exposed_copy, count(|at| at[2] && !at[0] && !at[1]));
            assert_eq!(figures.idle, count(|at| *at == [false; 3]));
            let parts = figures.compute + figures.exposed_communication() + figures.exposed_copy + figures.idle;
            assert_eq!(parts, figures.span);
        }
    }
}

#[test]
fn the_overlap_is_the_chosen_one() {
    for overlap in [0.0, 0.25, 0.8, 1.0] {
        let (_directory, _, truth) = write(&Recipe { replicas: 2, overlap, ..Recipe::default() });
        for step in truth.ranks.iter().flat_map(|rank| &rank.steps) {
            let measured = step.figures.overlap().unwrap();
            assert!((measured - overlap).abs() < 1e-4, "chose {overlap}, made {measured}");
        }
    }
    let (_directory, _, truth) = write(&Recipe::default());
    assert_eq!(truth.ranks[0].steps[0].figures.overlap(), None, "one rank has nobody to talk to");
}

#[test]
fn a_pipeline_without_jitter_has_the_ideal_bubble() {
    for schedule in Schedule::ONE_WAY {
        let chunks = if schedule == Schedule::Interleaved { 2 } else { 1 };
        for (stages, micro_batches) in [(2, 4), (4, 8), (4, 4)] {
            let recipe = Recipe {
                micro_batches,
                jitter: 0.0,
                largest_gap: Nanos(0),
                pipeline: Some(Pipeline { stages, schedule, chunks, transfer: Nanos(0) }),
                ..Recipe::default()
            };
            let (_directory, _, truth) = write(&recipe);
            let pipeline = truth.pipeline.unwrap();
            let work = micro_batches * chunks * if schedule == Schedule::ZeroBubble { 3 } else { 1 };
            let ideal = f64::from(stages - 1) / f64::from(work + stages - 1);
            assert!((pipeline.ideal_bubble - ideal).abs() < 1e-12);
            for step in 0..4 {
                assert!((pipeline.bubble(step) - ideal).abs() < 1e-9, "{schedule:?} {stages} {micro_batches}");
            }
        }
    }
    let jittery = Recipe {
        micro_batches: 8,
        pipeline: Some(Pipeline {
            stages: 4,
            schedule: Schedule::OneForwardOneBackward,
            chunks: 1,
            transfer: Nanos(50_000),
        }),
        ..Recipe::default()
    };
    let pipeline = write(&jittery).2.pipeline.unwrap();
    assert!((0..4).all(|step| pipeline.bubble(step) > pipeline.ideal_bubble), "transfers and jitter make it larger");
}

#[test]
fn the_memory_is_that_of_the_files() {
    let (_directory, run, truth) = write(&Recipe { replicas: 2, ..Recipe::default() });
    let (data, _) = run.ranks[1].read(Window::ALL).unwrap();
    let truth = &truth.ranks[1].memory;
    let mut live = BTreeMap::new();
    let (mut peak, mut at_peak) = (0, BTreeMap::new());
    for event in data.memory.rows() {
        match event.op {
            MemoryOperation::Alloc => {
                live.insert(event.address, (event.category.unwrap(), event.bytes.unwrap()));
            }
            MemoryOperation::Free => assert!(live.remove(&event.address).is_some(), "freed twice: {event:?}"),
            MemoryOperation::Reserve | MemoryOperation::Release => {}
        }
        let total = live.values().map(|(_, bytes)| bytes).sum::<u64>();
        if total > peak {
            peak = total;
            at_peak = BTreeMap::<MemoryCategory, u64>::new();
            live.values().for_each(|(category, bytes)| *at_peak.entry(*category).or_default() += bytes);
            assert!(event.time_ns <= truth.peak_time);
        }
    }
    assert_eq!((peak, &at_peak), (truth.peak_bytes, &truth.at_peak));
    assert_eq!(peak, truth.at_peak.values().sum::<u64>());
    let at_end: u64 = live.values().map(|(_, bytes)| bytes).sum();
    assert_eq!(at_end, truth.at_end.values().sum::<u64>());
    assert!(truth.reserved_peak_bytes >= peak, "what is allocated was taken from the device");
}

#[test]
fn clocks_differ_as_the_truth_says() {
    let recipe = Recipe {
        replicas: 3,
        steps: 20,
        clocks: Clocks { largest_offset: Nanos(1_000_000_000), largest_drift: 100_000, largest_wall_error: Nanos(0) },
        ..Recipe::default()
    };
    let (_directory, run, truth) = write(&recipe);
    let ends: Vec<Vec<Nanos>> = run
        .ranks
        .iter()
        .map(|rank| {
            let wall = rank.info.clock.wall_clock();
            let (data, _) = rank.read(Window::ALL).unwrap();
            let reduces = data.spans.rows().filter(|span| span.kind == SpanKind::AllReduce);
            reduces.map(|span| Nanos(wall.map(span.interval().1.0).unwrap())).collect()
        })
        .collect();
    assert_ne!(truth.ranks[0].clock_offset, truth.ranks[1].clock_offset);
    assert!(!ends[0].is_empty());
    for (one, two) in ends[0].iter().zip(&ends[1]) {
        assert!((*one - *two).0.abs() <= 2, "a collective ends together on every rank: {one} {two}");
    }
}

#[test]
fn equal_recipes_make_equal_runs() {
    let recipe = Recipe { replicas: 2, waiting: 0.3, ..Recipe::default() };
    let spans = |recipe: &Recipe| {
        let (_directory, run, truth) = write(recipe);
        let (data, _) = run.rank(Rank(1)).unwrap().read(Window::ALL).unwrap();
        (data.spans.rows().collect::<Vec<_>>(), truth.ranks[1].waited)
    };
    assert_eq!(spans(&recipe), spans(&recipe));
    assert_ne!(spans(&recipe).0, spans(&Recipe { seed: 2, ..recipe.clone() }).0);
    assert!(spans(&recipe).1 > Nanos(0));
}
