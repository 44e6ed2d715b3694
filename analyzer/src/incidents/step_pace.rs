//! Which steps are slow against those before them.

use std::collections::VecDeque;

use stepscope_traces::Nanos;

/// How many steps the usual one is told from, at least and at most.
const FEWEST: usize = 20;
const MOST: usize = 512;
/// A step is slow that takes so many times as long as usual, and so much longer.
const LEAST_RATIO: f64 = 1.5;
const LEAST_EXCESS: i64 = Nanos::SECOND.0 / 4;
/// And that is so many times as much longer as any of late was: what happens again and again is no news.
const OVER_WORST: f64 = 2.0;
/// By how much a worst step counts less with each step after it: half, after some 3,000.
const FORGETTING: f64 = 0.9998;

/// How long the steps of a rank take.
#[derive(Debug, Default)]
pub(super) struct StepPace {
    /// The last steps, the oldest first.
    durations: VecDeque<i64>,
    /// The usual one, and how many steps ago it was told.
    usual: Option<i64>,
    told_ago: usize,
    /// By how much the slowest of late took longer than usual.
    worst_excess: f64,
}

impl StepPace {
    /// Takes another step; says how long one usually takes, if this one is slow against that.
    pub(super) fn take(&mut self, took: i64) -> Option<i64> {
        let slow = self.usual.filter(|usual| {
            let excess = took - usual;
            took as f64 >= LEAST_RATIO * *usual as f64
                && excess >= LEAST_EXCESS
                && excess as f64 >= OVER_WORST * self.worst_excess
        });
        if let Some(usual) = self.usual {
            self.worst_excess = (self.worst_excess * FORGETTING).max((took - usual) as f64);
        }
        self.durations.push_back(took);
        if self.durations.len() > MOST {
            self.durations.pop_front();
        }
        self.told_ago += 1;
        // The median of many steps does not change with each of them.
        if self.durations.len() >= FEWEST && (self.usual.is_none() || self.told_ago * 16 >= self.durations.len()) {
            let mut sorted: Vec<i64> = self.durations.iter().copied().collect();
            let middle = sorted.len() / 2;
            self.usual = Some(*sorted.select_nth_unstable(middle).1);
            self.told_ago = 0;
        }
        slow
    }

    /// Forgets how slow steps were: what happened has nothing to do with how they usually are.
    pub(super) fn forgive(&mut self) {
        self.worst_excess = 0.0;
    }

    /// How long a step usually takes, once there were enough.
    pub(super) fn usual(&self) -> Option<i64> {
        self.usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Which of these steps are slow.
    fn slow(steps: impl IntoIterator<Item = i64>) -> Vec<usize> {
        let mut pace = StepPace::default();
        steps.into_iter().enumerate().filter_map(|(index, took)| pace.take(took * MS).map(|_| index)).collect()
    }

    /// Steps of 100 ms, some of which take another time.
    fn steps(count: usize, others: &[(usize, i64)]) -> Vec<i64> {
        let other = |index: usize| others.iter().find(|(at, _)| *at == index).map(|(_, took)| *took);
        (0..count).map(|index| other(index).unwrap_or(100 + (index as i64 * 7919) % 10)).collect()
    }

    #[test]
    fn a_step_is_slow_against_those_before_it() {
        assert_eq!(slow(steps(200, &[(0, 30_000), (150, 1000)])), [150], "the first one warms up");
        assert_eq!(slow(steps(200, &[(150, 300)])), [] as [usize; 0], "which is not much longer");
        assert_eq!(slow(steps(200, &[(10, 1000)])), [] as [usize; 0], "too few are known");
        assert_eq!(slow((0..200).map(|index| if index == 150 { 2500 } else { 2000 })), [] as [usize; 0]);
        assert_eq!(slow((0..200).map(|index| if index == 150 { 3500 } else { 2000 })), [150]);
    }

    #[test]
    fn what_happens_again_is_no_news_until_it_is_worse() {
        let again: Vec<(usize, i64)> = (1..20).map(|time| (time * 100, 1000 + time as i64)).collect();
        assert_eq!(slow(steps(2000, &again)), [100]);
        assert_eq!(slow(steps(2000, &[(100, 1000), (500, 1500), (900, 4000)])), [100, 900]);
        assert_eq!(slow(steps(12_000, &[(100, 1000), (11_000, 1000)])), [100, 11_000], "long ago");
    }

    #[test]
    fn what_is_forgiven_does_not_count() {
        let mut pace = StepPace::default();
        let slow =
            |steps: Vec<i64>, pace: &mut StepPace| steps.into_iter().filter_map(|took| pace.take(took * MS)).count();
        assert_eq!(slow(steps(101, &[(100, 60_000)]), &mut pace), 1);
        assert_eq!(slow(steps(101, &[(100, 2000)]), &mut pace), 0);
        pace.forgive();
        assert_eq!(slow(steps(101, &[(100, 2000)]), &mut pace), 1);
    }

    #[test]
    fn another_pace_is_the_usual_one_after_a_while() {
        let slower = (0..2000).map(|index| if index < 1000 { 100 } else { 1000 });
        assert_eq!(slow(slower), [1000]);
    }
}
