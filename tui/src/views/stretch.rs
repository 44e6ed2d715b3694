//! Which stretch of time is seen: nearer, farther, earlier, later, and never beyond what there is.

use stepscope_traces::{Nanos, Window};

/// The shortest stretch that is looked at.
const LEAST: i64 = 20;

/// How far zooming goes at once, as a multiple of the length, and panning, as a part of it.
pub(super) const ZOOM: i64 = 2;
pub(super) const PAN: i64 = 4;

/// How long a stretch is.
pub(in crate::views) fn length(window: Window) -> i64 {
    window.to.0.saturating_sub(window.from.0).max(1)
}

/// The middle of a stretch.
pub(in crate::views) fn middle(window: Window) -> i64 {
    window.from.0.saturating_add(length(window) / 2)
}

/// A stretch of another length, in which a moment stays where it is.
pub(in crate::views) fn of_length(window: Window, moment: i64, new: i64, within: Window) -> Window {
    let new = new.clamp(LEAST, length(within).max(LEAST));
    let share = moment.saturating_sub(window.from.0) as f64 / length(window) as f64;
    let from = moment.saturating_sub((new as f64 * share.clamp(0.0, 1.0)) as i64);
    inside(from, new, within)
}

/// A stretch so much later, or earlier.
pub(in crate::views) fn moved(window: Window, by: i64, within: Window) -> Window {
    inside(window.from.0.saturating_add(by), length(window), within)
}

/// A stretch of the same length around a moment.
pub(in crate::views) fn around(window: Window, moment: i64, within: Window) -> Window {
    moved(window, moment.saturating_sub(middle(window)), within)
}

fn inside(from: i64, length: i64, within: Window) -> Window {
    let latest = within.to.0.saturating_sub(length).max(within.from.0);
    let from = from.clamp(within.from.0, latest);
    Window { from: Nanos(from), to: Nanos(from.saturating_add(length)) }
}

/// The cells between two times, of so many, if any of it is seen; what is seen has a cell at least.
pub(in crate::views) fn cells(window: Window, (start, end): (i64, i64), cells: u16) -> Option<(u16, u16)> {
    if end < window.from.0 || start >= window.to.0 || cells == 0 {
        return None;
    }
    let cell = |time: i64| {
        let share = time.saturating_sub(window.from.0) as f64 / length(window) as f64;
        (share * f64::from(cells)).clamp(0.0, f64::from(cells)).round() as u16
    };
    let first = cell(start).min(cells - 1);
    Some((first, cell(end).max(first + 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(from: i64, to: i64) -> Window {
        Window { from: Nanos(from), to: Nanos(to) }
    }

    #[test]
    fn what_is_looked_at_stays_where_it_is() {
        let all = window(0, 100_000);
        assert_eq!(of_length(window(1_000, 2_000), 1_250, 500, all), window(1_125, 1_625));
        assert_eq!(of_length(window(1_000, 2_000), 1_250, 2_000, all), window(750, 2_750));
        assert_eq!(of_length(window(0, 1_000), 500, i64::MAX, all), all);
        assert_eq!(of_length(window(0, 100), 50, 0, all), window(40, 60), "never nearer than that");
    }

    #[test]
    fn nobody_goes_beyond_what_there_is() {
        let all = window(0, 1_000);
        assert_eq!(moved(window(100, 300), -500, all), window(0, 200));
        assert_eq!(moved(window(100, 300), 5_000, all), window(800, 1_000));
        assert_eq!(around(window(100, 300), 500, all), window(400, 600));
    }

    #[test]
    fn times_have_their_cells() {
        let all = window(0, 1_000);
        assert_eq!(cells(all, (0, 500), 10), Some((0, 5)));
        assert_eq!(cells(all, (990, 995), 10), Some((9, 10)), "what is short is seen");
        assert_eq!(cells(all, (-50, 20), 10), Some((0, 1)));
        assert_eq!(cells(all, (1_000, 1_001), 10), None);
        assert_eq!(cells(all, (0, 500), 0), None);
    }

    proptest! {
        #[test]
        fn any_way_there_is_a_stretch_inside(from in any::<i64>(), length in 1..i64::MAX, moment in any::<i64>(), new in any::<i64>(), by in any::<i64>()) {
            let all = window(-1_000_000, 1_000_000);
            let now = window(from, from.saturating_add(length));
            for seen in [of_length(now, moment, new, all), moved(of_length(now, moment, new, all), by, all)] {
                prop_assert!(seen.from < seen.to && seen.from >= all.from && seen.to <= all.to, "{seen:?}");
            }
        }
    }
}
