//! The few figures that people look for first, as tiles above all that is said of them.

use stepscope_analyzer::Analysis;
use stepscope_plan::text;

use crate::{analyze::report, render::html::escaped};

/// A tile: what it is, the figure, and what to know of it.
struct Tile {
    name: &'static str,
    value: String,
    note: String,
}

/// Tiles of all figures that are known.
pub(super) fn written(analysis: &Analysis) -> String {
    let tiles = [step(analysis), speed(analysis), mfu(analysis), loss(analysis), memory(analysis)];
    let tile = |Tile { name, value, note }: Tile| {
        let [value, note] = [value, note].map(|words| escaped(&words));
        format!("<li><small>{name}</small><strong>{value}</strong><small>{note}</small></li>\n")
    };
    let tiles: String = tiles.into_iter().flatten().map(tile).collect();
    if tiles.is_empty() { String::new() } else { format!("<ul class=\"headline\">\n{tiles}</ul>\n") }
}

fn step(analysis: &Analysis) -> Option<Tile> {
    let time = analysis.step_time.as_ref()?;
    let (name, note) = match time.count {
        1 => ("step", format!("step {}", time.first_step)),
        count => {
            ("step, median", format!("{} in {} steps", text::durations(time.low_ns, time.high_ns), text::count(count)))
        }
    };
    Some(Tile { name, value: text::duration(time.median_ns), note })
}

fn speed(analysis: &Analysis) -> Option<Tile> {
    let speed = analysis.step_time.as_ref()?.tokens_per_second?;
    let tokens = analysis.counted_steps().filter_map(|step| step.tokens).last();
    let note = tokens.map_or_else(String::new, |tokens| format!("{} per step", text::count(tokens.round() as u64)));
    Some(Tile { name: "tokens/s", value: text::count(speed.round() as u64), note })
}

fn mfu(analysis: &Analysis) -> Option<Tile> {
    let mfu = analysis.mfu.as_ref()?;
    let note = match analysis.beyond_peak() {
        Some(_) => "the peak is too low".into(),
        None => format!("of {} per rank", text::flops(mfu.peak_flops)),
    };
    Some(Tile { name: "MFU", value: text::percent(mfu.value?), note })
}

fn loss(analysis: &Analysis) -> Option<Tile> {
    let losses = analysis.counted_losses();
    let ((first, from), (last, loss)) = (losses.first()?, losses.last()?);
    let note = match first == last {
        true => format!("in step {last}"),
        false => format!("from {} in step {first}", text::training_loss(*from)),
    };
    Some(Tile { name: "loss", value: text::training_loss(*loss), note })
}

fn memory(analysis: &Analysis) -> Option<Tile> {
    let memory = report::fullest(analysis)?;
    let all = analysis.run.device.as_ref().and_then(|device| device.memory_bytes);
    let share =
        all.map(|all| format!(", {} of {}", text::percent(memory.peak_bytes as f64 / all as f64), text::bytes(all)));
    let note = format!("rank {}{}", memory.rank, share.unwrap_or_default());
    let name = if memory.one_moment { "memory, at the end" } else { "memory, peak" };
    Some(Tile { name, value: text::bytes(memory.peak_bytes), note })
}
