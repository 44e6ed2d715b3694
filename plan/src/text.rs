//! Numbers and texts as people read them: in errors, in findings, in reports and in the dashboard, everywhere the same.

use crate::{counted::Model, layout::ParallelLayout};

/// A whole number with its thousands apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with what it counts, in the singular where it is one.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A parameter count as people say it.
pub fn parameters(number: u64) -> String {
    match number {
        0..1_000_000_000 => format!("{:.1} M", number as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.1} B", number as f64 / 1e9),
        _ => format!("{:.1} T", number as f64 / 1e12),
    }
}

/// A size in the unit that leaves one to three digits before the point.
pub fn bytes(number: u64) -> String {
    scaled(number as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A length of time in the unit that leaves one to three digits before the point.
pub fn duration(nanoseconds: i64) -> String {
    match nanoseconds as f64 / 1e9 {
        seconds if seconds < 0.0 => format!("-{}", duration(nanoseconds.saturating_neg())),
        seconds if seconds < 1.0 => scaled(nanoseconds as f64, 1000.0, &["ns", "µs", "ms"]),
        seconds if seconds < 10.0 => format!("{seconds:.2} s"),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// How long ago something was: to a tenth of a second, since it is written again and again.
pub fn age(nanoseconds: i64) -> String {
    match nanoseconds {
        ..10_000_000_000 => format!("{:.1} s", nanoseconds as f64 / 1e9),
        _ => duration(nanoseconds),
    }
}

/// Two lengths of time in the unit of the longer one, where there is little room.
pub fn durations(low: i64, high: i64) -> String {
    durations_around(low, high, high)
}

/// Two lengths of time in the unit that another one between them has, which stands beside them.
pub fn durations_around(low: i64, middle: i64, high: i64) -> String {
    let (unit, name) = match middle {
        7_200_000_000_000.. => (3600e9, "h"),
        120_000_000_000..7_200_000_000_000 => (60e9, "min"),
        1_000_000_000..120_000_000_000 => (1e9, "s"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000..1_000_000 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let (low, high) = (low as f64 / unit, high as f64 / unit);
    let decimals = if high < 10.0 { 2 } else { 1 };
    format!("{low:.decimals$}–{high:.decimals$} {name}")
}

/// A change with its sign, in the form of what changes.
pub fn signed(change: i64, written: impl Fn(u64) -> String) -> String {
    let sign = if change < 0 { "-" } else { "+" };
    format!("{sign}{}", written(change.unsigned_abs()))
}

/// How much longer something takes.
pub fn longer(nanoseconds: i64) -> String {
    signed(nanoseconds, |time| duration(time.min(i64::MAX as u64) as i64))
}

/// How much larger something is.
pub fn larger(change: i64) -> String {
    signed(change, bytes)
}

/// A share, in hundredths.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A share in a sentence: whole hundredths, unless there are few of them.
pub fn rough_percent(share: f64) -> String {
    if share > 0.0 && share < 0.1 { percent(share) } else { whole_percent(share) }
}

/// A share in whole hundredths, for what is set and not measured.
pub fn whole_percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// A share that may be small.
pub fn fine_percent(share: f64) -> String {
    if share < 0.001 { format!("{:.3}%", 100.0 * share) } else { percent(share) }
}

/// How much more something is than before, as a share of that.
pub fn percent_more(change: f64) -> String {
    let tenths = (1000.0 * change).round();
    // What is nothing has no sign.
    if tenths == 0.0 { "0.0%".to_owned() } else { format!("{:+.1}%", tenths / 10.0) }
}

/// The loss of a model.
pub fn training_loss(loss: f64) -> String {
    format!("{loss:.4}")
}

/// Operations a second.
pub fn flops(rate: f64) -> String {
    scaled(rate, 1000.0, &["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"])
}

/// Operations.
pub fn operations(number: f64) -> String {
    scaled(number, 1000.0, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"])
}

/// A whole number of thousandths, as thousands apart with the thousandths behind the point.
pub fn thousandths(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let number = number.unsigned_abs();
    format!("{sign}{}.{:03}", count(number / 1000), number % 1000)
}

/// Bytes a second.
pub fn bandwidth(rate: f64) -> String {
    scaled(rate, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Energy.
pub fn joules(energy: f64) -> String {
    match energy.abs() {
        energy_size if energy_size < 1e-3 => format!("{:.1} µJ", energy * 1e6),
        energy_size if energy_size < 1.0 => format!("{:.1} mJ", energy * 1e3),
        _ => format!("{energy:.1} J"),
    }
}

/// Power.
pub fn watts(power: f64) -> String {
    format!("{power:.0} W")
}

/// The rate of a clock, given in MHz.
pub fn megahertz(rate: f64) -> String {
    format!("{rate:.0} MHz")
}

/// A temperature.
pub fn celsius(degrees: f64) -> String {
    format!("{degrees:.0} °C")
}

/// Operations for each byte, a kernel's or the ridge of a device.
pub fn intensity(intensity: f64) -> String {
    if intensity < 10.0 { format!("{intensity:.2}") } else { count(intensity.round() as u64) }
}

/// How a model is spread over ranks.
pub fn layout(layout: &ParallelLayout) -> String {
    let ParallelLayout { tp, sequence_parallel, cp, ep, pp, zero, unit_layers, precision, .. } = layout;
    let (dp, shared) = (replicas(layout), if *sequence_parallel { "+sp" } else { "" });
    let [experts, context, units] = [("ep", ep), ("cp", cp), ("unit-layers", unit_layers)]
        .map(|(axis, size)| if *size > 1 { format!(" · {axis} {size}") } else { String::new() });
    let zero = u8::from(*zero);
    format!("dp {dp}{experts} · tp {tp}{shared}{context} · pp {pp} · zero {zero}{units} · {}", precision.name())
}

/// How many replicas there are: groups of those that share something, where there are several.
pub fn replicas(layout: &ParallelLayout) -> String {
    match layout.dp_replicate {
        1 => layout.dp.to_string(),
        groups => format!("{} ({groups} × {})", layout.dp, layout.dp / groups),
    }
}

/// What was run, in a few words each: the model, how it was spread, and what recorded it, where that is worth a word.
pub fn what_was_run(model: Option<&Model>, layout: Option<String>, recorded_by: Option<&str>) -> Vec<String> {
    let model = model.map(|model| format!("{} {}", model.name(), parameters(model.parameters())));
    [model, layout, recorded_by.map(str::to_owned)].into_iter().flatten().collect()
}

/// Words in a row, as people write it.
pub fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// At most this many ranges of ranks are named.
const MOST_RANGES: usize = 4;

/// Ranks by their numbers, which are in order, those beside each other as a range: `rank 3`, `ranks 3-252, 256`.
pub fn named_ranks(ranks: &[u32]) -> String {
    let ranges: Vec<&[u32]> = ranks.chunk_by(|one, next| one.checked_add(1) == Some(*next)).collect();
    let range = |range: &&[u32]| match range {
        [] => String::new(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let shown: Vec<String> = ranges.iter().take(MOST_RANGES).map(range).collect();
    let others: usize = ranges.iter().skip(MOST_RANGES).map(|range| range.len()).sum();
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("{word} {}{others}", shown.join(", "))
}

/// How many ranks there are, and of how many, where some are missing.
pub fn ranks(present: u64, expected: Option<u32>) -> String {
    match expected {
        Some(expected) if u64::from(expected) != present => format!("{present} of {expected} ranks"),
        _ => counted(present, "rank"),
    }
}

fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.95 would be written as 1000.0.
    while number >= step - 0.05 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{number:.decimals$} {}", units[unit])
}

/// No text from a file is shown with more characters.
const LONGEST_TEXT: usize = 4096;
/// No name from a file is shown with more characters: templates of C++ have names of many thousands.
pub const LONGEST_NAME: usize = 512;

/// Text from a file, without what could pass for something else, and not longer than anybody reads.
pub fn printable(text: &str) -> String {
    shortened(text, LONGEST_TEXT).replace(misleads, "\u{fffd}")
}

/// A name from a file, as [`printable`] text, and short enough for a table.
pub fn printable_name(name: &str) -> String {
    printable(&shortened(name, LONGEST_NAME))
}

/// Whether a character does something else than being seen: it moves the cursor or breaks the line, has those after it
/// stand in another order, or cannot be seen at all, so that a name looks like another one.
pub fn misleads(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    let is_unseen = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || turns || breaks || is_unseen
}

/// A text cut to this many characters by leaving out its middle.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let tail = width.saturating_sub(1) / 3;
    let head: String = text.chars().take(width.saturating_sub(1 + tail)).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

/// A text in lines of at most this many characters, broken between words; longer words are cut.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().map(|word| shortened(word, width)) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = word,
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(2, "event"), "2 events");
        assert_eq!(parameters(1_706_112), "1.7 M");
        assert_eq!(parameters(405_853_388_800), "405.9 B");
        assert_eq!(thousandths(12_345_678), "12,345.678");
        assert_eq!(thousandths(-5), "-0.005");
        assert_eq!(operations(2.5e12), "2.5 TFLOP");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(123_456_789), "123.5 MB");
        assert_eq!(duration(950), "950 ns");
        assert_eq!(duration(1_500_000), "1.5 ms");
        assert_eq!(duration(1_234_567_890), "1.23 s");
        assert_eq!(duration(61_000_000_000), "61.0 s");
        assert_eq!(duration(5_400_000_000_000), "90.0 min");
        assert_eq!(age(950_000), "0.0 s");
        assert_eq!(age(61_000_000_000), "61.0 s");
        assert_eq!(durations(9_500_000, 11_250_000), "9.5–11.2 ms");
        assert_eq!(durations(900, 1_100), "0.90–1.10 µs");
        assert_eq!(durations(100_000_000_000, 125_000_000_000), "1.67–2.08 min");
        assert_eq!(durations_around(100_000_000_000, 118_000_000_000, 125_000_000_000), "100.0–125.0 s");
        assert_eq!(durations_around(230_900_000_000, 252_000_000_000, 279_200_000_000), "3.85–4.65 min");
    }

    #[test]
    fn shares_are_as_exact_as_what_they_are_for() {
        assert_eq!([0.0, 0.041, 0.532].map(percent), ["0.0%", "4.1%", "53.2%"]);
        assert_eq!([0.0, 0.041, 0.532].map(rough_percent), ["0%", "4.1%", "53%"]);
        assert_eq!([0.0, 0.041, 0.532].map(whole_percent), ["0%", "4%", "53%"]);
        assert_eq!([0.000_41, 0.041].map(fine_percent), ["0.041%", "4.1%"]);
        assert_eq!([-0.05, -0.0004, 0.1234].map(percent_more), ["-5.0%", "0.0%", "+12.3%"]);
    }

    #[test]
    fn an_intensity_is_short() {
        assert_eq!([0.25, 9.994, 206.1, 12_345.6].map(intensity), ["0.25", "9.99", "206", "12,346"]);
    }

    #[test]
    fn text_of_others_does_no_harm() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        assert_eq!(printable("adam\u{202e}xyz"), "adam\u{fffd}xyz");
        let misleading = ["\0\t\u{1b}\u{7f}\u{80}\u{9b}\u{9f}", "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}"];
        let more =
            ["\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}", "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}"];
        for text in misleading.iter().chain(&more) {
            assert_eq!(printable(text), "\u{fffd}".repeat(text.chars().count()), "{text:?}");
        }
        for plain in ["void gemm<float, 128>(T*)", "модель ✓ 模型 …", "é·µ"] {
            assert_eq!(printable(plain), plain);
        }
        assert_eq!(printable(&"é".repeat(1 << 20)).chars().count(), LONGEST_TEXT);
        assert_eq!(printable_name(&"é\u{200b}".repeat(1 << 20)).chars().count(), LONGEST_NAME);
    }

    #[test]
    fn long_texts_fit() {
        assert_eq!(shortened("matmul", 6), "matmul");
        assert_eq!(shortened("a_very_long_kernel_name", 10), "a_very…ame");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-word-that-is-long and more", 8), ["a-wor…ng", "and more"]);
        assert_eq!(wrapped("", 8), [""]);
    }
}
