//! Figures beside their goals, as every bench prints them.
#![allow(dead_code, reason = "each bench is a program of its own and uses some of this")]

use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

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
    rows: Vec<Row>,
}

/// One figure beside its goal.
struct Row {
    figure: String,
    unit: &'static str,
    goal: Goal,
    measured: Estimate,
}

#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// How many times as good a value is; below one it misses.
    fn margin(self, value: f64) -> f64 {
        match self {
            Goal::AtMost(goal) => goal / value,
            Goal::AtLeast(goal) => value / goal,
        }
    }
}

impl Row {
    /// Whether the best that was measured misses: a machine that is slow at times does not do that.
    fn is_missed(&self) -> bool {
        self.goal.margin(self.measured.low).max(self.goal.margin(self.measured.high)) < 1.0
    }
}

impl Table {
    pub(crate) fn at_most(&mut self, figure: &str, unit: &'static str, goal: f64, measured: Estimate) {
        self.rows.push(Row { figure: figure.into(), unit, goal: Goal::AtMost(goal), measured });
    }

    pub(crate) fn at_least(&mut self, figure: &str, unit: &'static str, goal: f64, measured: Estimate) {
        self.rows.push(Row { figure: figure.into(), unit, goal: Goal::AtLeast(goal), measured });
    }

    /// Ends a bench: its figures go into the history, and it fails if it has missed one.
    pub(crate) fn end(&self) -> Result<(), Box<dyn Error>> {
        self.remember()?;
        let missed: Vec<&str> = self.rows.iter().filter(|row| row.is_missed()).map(|row| row.figure.as_str()).collect();
        if missed.is_empty() { Ok(()) } else { Err(format!("missed, even at best: {}", missed.join("; ")).into()) }
    }

    /// Adds a line for each figure to `target/benches.tsv`, or to the file that `STEPSCOPE_BENCHES` names: the time, the commit, the
    /// figure, its unit, its value, the least and the most.
    fn remember(&self) -> io::Result<()> {
        let file = env::var_os("STEPSCOPE_BENCHES")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/benches.tsv"), PathBuf::from);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let described = Command::new("git").args(["describe", "--always", "--dirty"]).output();
        let commit = described.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).trim().into());
        let lines = self.rows.iter().map(|Row { figure, unit, measured: Estimate { value, low, high }, .. }| {
            format!("{time}\t{commit}\t{figure}\t{unit}\t{value}\t{low}\t{high}\n")
        });
        let lines: String = lines.collect();
        OpenOptions::new().create(true).append(true).open(file)?.write_all(lines.as_bytes())
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<38} {:>8} {:>8} {:>16} {:<6} {:>7}", "figure", "goal", "measured", "spread", "", "margin")?;
        for row in &self.rows {
            let Row { figure, unit, goal, measured: Estimate { value, low, high } } = row;
            let margin = goal.margin(*value);
            let verdict = match (margin >= 1.0, row.is_missed()) {
                (true, _) => "",
                (false, true) => "  missed",
                (false, false) => "  missed at times",
            };
            let goal = match goal {
                Goal::AtMost(goal) => format!("<= {goal}"),
                Goal::AtLeast(goal) => format!(">= {goal}"),
            };
            let spread = format!("{low:.3}..{high:.3}");
            write!(f, "\n{figure:<38} {goal:>8} {value:>8.3} {spread:>16} {unit:<6} {margin:>6.2}x{verdict}")?;
        }
        Ok(())
    }
}
