//! Figures beside their goals, as every bench prints them.
#![allow(dead_code, reason = "each bench is a program of its own and uses some of this")]

/// A figure and how far it may be off.
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    pub(crate) fn exact(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    pub(crate) fn of(mut values: Vec<f64>, choose: impl Fn(&[f64]) -> f64) -> Estimate {
        values.sort_by(f64::total_cmp);
        Estimate { value: choose(&values), low: values[0], high: values[values.len() - 1] }
    }

    /// From nanoseconds for one to millions in a second.
    pub(crate) fn per_second(self) -> Estimate {
        Estimate { value: 1e3 / self.value, low: 1e3 / self.high, high: 1e3 / self.low }
    }
}

/// The figures beside their goals.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<String>,
}

impl Table {
    pub(crate) fn at_most(&mut self, figure: &str, unit: &str, goal: f64, measured: Estimate) {
        self.row(figure, unit, &format!("<= {goal}"), goal / measured.value, &measured);
    }

    pub(crate) fn at_least(&mut self, figure: &str, unit: &str, goal: f64, measured: Estimate) {
        self.row(figure, unit, &format!(">= {goal}"), measured.value / goal, &measured);
    }

    fn row(&mut self, figure: &str, unit: &str, goal: &str, better: f64, measured: &Estimate) {
        let Estimate { value, low, high } = measured;
        let verdict = if better >= 1.0 { "" } else { "  missed" };
        let spread = format!("{low:.3}..{high:.3}");
        self.rows.push(format!("{figure:<38} {goal:>8} {value:>8.3} {spread:>16} {unit:<6} {better:>6.2}x{verdict}"));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<38} {:>8} {:>8} {:>16} {:<6} {:>7}", "figure", "goal", "measured", "spread", "", "margin")?;
        write!(f, "{}", self.rows.join("\n"))
    }
}
