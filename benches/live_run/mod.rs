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

/// How large a run is, and how fast it grows.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) ranks: u32,
    pub(crate) spans_a_second: usize,
    spans_of_a_step: usize,
    flush: Duration,
    /// After so long it has filled what whoever follows it keeps.
    pub(crate) steady: Duration,
}

/// A machine that launches fast.
pub(crate) const FAST: Growth = Growth {
    ranks: 8,
    spans_a_second: 200_000,
    spans_of_a_step: 2_500,
    flush: Duration::from_millis(100),
    steady: Duration::from_secs(15),
};
/// A large job, of which each rank has little to say.
pub(crate) const WIDE: Growth = Growth {
    ranks: 1_024,
    spans_a_second: 102_400,
    spans_of_a_step: 100,
    flush: Duration::from_secs(1),
    steady: Duration::from_secs(90),
};

/// Writes a run, as fast as it is to be, and says which step it has come to.
pub(crate) fn write(run: &Path, growth: Growth) -> Result<(), Box<dyn Error>> {
    let mut info = RunInfo::of_this_process("live");
    info.world_size = Some(growth.ranks);
    info.create(run)?;
    let mut writers = (0..growth.ranks)
        .map(|rank| RankWriter::create(run, RankInfo::of_this_process(Rank(rank))))
        .collect::<Result<Vec<_>, _>>()?;
    for writer in &mut writers {
        (0..40).try_for_each(|name| writer.push_name(NameId(FIRST_NAME.0 + name), &format!("kernel_{name}")))?;
    }
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "begun")?;
    stdout.flush()?;
    let (began, origin) = (Instant::now(), now().0);
    let length = 1_000_000_000 * i64::from(growth.ranks) / growth.spans_a_second as i64;
    let made = Made { origin, length, spans_of_a_step: growth.spans_of_a_step };
    let (mut written, mut told) = (0_usize, None);
    loop {
        thread::sleep(growth.flush);
        let due = (began.elapsed().as_secs_f64() * growth.spans_a_second as f64) as usize / growth.ranks as usize;
        for writer in &mut writers {
            for index in written..due {
                writer.push_span(&made.span(index))?;
                made.annotation(index).map_or(Ok(()), |span| writer.push_span(&span))?;
                made.memory_event(index).map_or(Ok(()), |event| writer.push_memory(&event))?;
            }
            writer.flush()?;
        }
        written = due;
        let step = due.saturating_sub(1) / growth.spans_of_a_step;
        if told != Some(step) {
            writeln!(stdout, "{step}")?;
            stdout.flush()?;
            told = Some(step);
        }
    }
}

/// What ranks do, one thing after another.
#[derive(Clone, Copy)]
struct Made {
    /// When they begin, and how long each thing takes.
    origin: i64,
    length: i64,
    spans_of_a_step: usize,
}

impl Made {
    fn span(self, index: usize) -> Span {
        let kind = if index % 10 == 9 { SpanKind::AllReduce } else { SpanKind::Kernel };
        let name = NameId(FIRST_NAME.0 + (index % 40) as u32);
        let start = Nanos(self.origin + index as i64 * self.length);
        Span {
            step: Some(Step((index / self.spans_of_a_step) as i32)),
            stream: Some(Stream(u32::from(kind != SpanKind::Kernel))),
            phase: Some(if index % self.spans_of_a_step < self.spans_of_a_step / 3 {
                Phase::Forward
            } else {
                Phase::Backward
            }),
            correlation: Some(Correlation(index as u64)),
            ..Span::new(kind, name, start, Nanos(self.length * 9 / 10))
        }
    }

    /// Every tenth span takes memory, or gives back what another took.
    fn memory_event(self, index: usize) -> Option<MemoryEvent> {
        let op = match index % 20 {
            0 => MemoryOperation::Alloc,
            10 => MemoryOperation::Free,
            _ => return None,
        };
        Some(MemoryEvent {
            time_ns: Nanos(self.origin + index as i64 * self.length),
            op,
            address: 1 + (index / 20) as u64,
            bytes: Some(1 << 20),
            category: Some(MemoryCategory::Activations),
            step: Some(Step((index / self.spans_of_a_step) as i32)),
            phase: Some(Phase::Forward),
            layer: None,
            pool: None,
            site: None,
        })
    }

    /// The annotation of a step, after its last span.
    fn annotation(self, index: usize) -> Option<Span> {
        let last = (index + 1).is_multiple_of(self.spans_of_a_step);
        let first = (index + 1 - self.spans_of_a_step.min(index + 1)) as i64;
        let step = Some(Step((index / self.spans_of_a_step) as i32));
        let span = Span::new(
            SpanKind::Step,
            FIRST_NAME,
            Nanos(self.origin + first * self.length),
            Nanos(self.length * self.spans_of_a_step as i64),
        );
        last.then_some(Span { step, ..span })
    }
}
