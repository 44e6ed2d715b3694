//! Tables of kernels by who launched them.

use stepscope_analyzer::{Analysis, Bound, GemmFigures, KernelRates, LaunchedKernels, ShapeFigures};
use stepscope_plan::text;
use stepscope_traces::without_signature;

use super::tables::over_ranks;
use crate::render::table::{Table, Topic, duration, known, unknown};

/// Modules that are deeper are a detail.
const DEEPEST: usize = 4;

/// What matters most comes first: a narrow terminal leaves out the last ones.
const HEADERS: [&str; 8] =
    [">total", ">share", ">launches", ">rate", ">of roof", ">idle before", ">below 10 µs", ">bandwidth"];

fn cells(kernels: &LaunchedKernels) -> [String; 8] {
    let KernelRates { flops_per_second, bytes_per_second, roof_share, bound, .. } = kernels.rates;
    let roof = roof_share.zip(bound).map(|(share, bound)| {
        let side = if bound == Bound::Memory { "memory" } else { "compute" };
        format!("{} {side}", text::percent(share))
    });
    [
        duration(kernels.total_ns),
        text::percent(kernels.share),
        text::count(kernels.count),
        known(flops_per_second, text::flops),
        known(roof, |roof| roof),
        known(Some(kernels.idle_before_ns).filter(|idle| *idle > 0), duration),
        known(Some(kernels.small_count).filter(|count| *count > 0), text::count),
        known(bytes_per_second, text::bandwidth),
    ]
}

/// A table of groups, of which the first ones are shown.
fn table(
    analysis: &Analysis,
    first: &'static str,
    title: &str,
    rows: Vec<Vec<String>>,
    most: usize,
    detail: bool,
) -> Table {
    let all = rows.len();
    let title = match all {
        all if all > most => format!("{title}: top {most} of {all} by total time"),
        _ => title.to_owned(),
    };
    let headers = [first].into_iter().chain(HEADERS).collect();
    let rows = rows.into_iter().take(most).collect();
    Table { topic: Topic::Kernels, title: over_ranks(&title, analysis), headers, rows, detail }
}

fn row(name: String, kernels: &LaunchedKernels) -> Vec<String> {
    [name].into_iter().chain(cells(kernels)).collect()
}

pub(super) fn operators(analysis: &Analysis, most: usize) -> Table {
    let operators = analysis.operators.iter();
    let rows = operators
        .map(|figures| row(figures.operator.clone().unwrap_or_else(|| "no operator".into()), &figures.kernels));
    table(analysis, "operator", "Kernels by operator", rows.collect(), most, false)
}

pub(super) fn shapes(analysis: &Analysis, most: usize) -> Table {
    let named = analysis.operators.iter().filter_map(|figures| Some((figures.operator.as_ref()?, &figures.shapes)));
    let mut shapes: Vec<(&String, &ShapeFigures)> =
        named.flat_map(|(operator, shapes)| shapes.iter().map(move |shape| (operator, shape))).collect();
    shapes.retain(|(_, shape)| shape.shapes.is_some());
    shapes.sort_by_key(|(_, shape)| -shape.kernels.total_ns);
    let rows = shapes.iter().map(|(operator, shape)| {
        row(format!("{operator} {}", shape.shapes.as_deref().unwrap_or_default()), &shape.kernels)
    });
    table(analysis, "operator and shapes", "Kernels by operator and shapes", rows.collect(), most, true)
}

pub(super) fn modules(analysis: &Analysis, most: usize) -> Table {
    let shown = analysis.modules.iter().filter(|module| module.depth < DEEPEST);
    let rows = shown.map(|figures| {
        let name = figures.module.as_deref().map_or("no module", |path| path.rsplit('/').next().unwrap_or(path));
        row(format!("{}{name}", "  ".repeat(figures.depth)), &figures.kernels)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let all = rows.len();
    let title =
        if all > most { format!("Kernels by module: first {most} of {all}") } else { "Kernels by module".into() };
    let mut table = table(analysis, "module", "", rows, most, false);
    table.title = over_ranks(&title, analysis);
    table
}

pub(super) fn sources(analysis: &Analysis, most: usize) -> Table {
    let sources = analysis.sources.iter();
    let rows = sources.map(|figures| {
        row(figures.source.as_deref().map_or_else(|| "no line".into(), |line| near(line).into()), &figures.kernels)
    });
    table(analysis, "line", "Kernels by line of the program", rows.collect(), most, false)
}

/// A line without the directories of its file, which are where it is installed.
fn near(line: &str) -> &str {
    let path = line.find(".py:").map_or(line, |end| &line[..end]);
    path.rfind('/').map_or(line, |slash| &line[slash + 1..])
}

pub(super) fn gemms(analysis: &Analysis, most: usize) -> Table {
    let shape = |gemm: &GemmFigures| {
        let batch = if gemm.batch > 1 { format!("{} × ", gemm.batch) } else { String::new() };
        format!("{batch}{}×{}×{}", gemm.m, gemm.n, gemm.k)
    };
    let trouble = |gemm: &GemmFigures| {
        let mut trouble = Vec::new();
        if gemm.without_tensor_cores {
            trouble.push("no tensor cores".to_owned());
        }
        if !gemm.misaligned.is_empty() {
            trouble.push(format!("{} misaligned", gemm.misaligned.join(", ")));
        }
        if trouble.is_empty() { unknown() } else { trouble.join("; ") }
    };
    let rows = analysis.gemms.iter().take(most).map(|gemm| {
        vec![
            shape(gemm),
            known(gemm.precision, |precision| precision.word().into()),
            known(gemm.layout, |layout| layout.word().into()),
            text::count(gemm.kernels.count),
            duration(gemm.kernels.total_ns),
            known(gemm.kernels.rates.flops_per_second, text::flops),
            known(gemm.kernels.rates.peak_share, text::percent),
            known(gemm.waves, |waves| format!("{waves:.1}")),
            known(gemm.wave_efficiency, text::percent),
            trouble(gemm),
            without_signature(&gemm.kernel).into(),
        ]
    });
    let headers = vec![
        "m×n×k",
        "precision",
        "layout",
        ">count",
        ">total",
        ">rate",
        ">of peak",
        ">waves",
        ">filled",
        "trouble",
        "kernel",
    ];
    let all = analysis.gemms.len();
    let title = match all {
        all if all > most => format!("Matrix products: top {most} of {all} shapes by total time"),
        _ => "Matrix products".into(),
    };
    Table { topic: Topic::Kernels, title: over_ranks(&title, analysis), headers, rows: rows.collect(), detail: false }
}

pub(super) fn durations(analysis: &Analysis) -> Table {
    let mut from = "0".to_owned();
    let mut rows = Vec::new();
    if let Some(durations) = &analysis.kernel_durations {
        for bin in &durations.histogram {
            let to = bin.below_ns.map(duration);
            let range = match &to {
                Some(to) => format!("{from} to {to}"),
                None => format!("{from} and longer"),
            };
            from = to.unwrap_or_default();
            rows.push(vec![
                range,
                text::count(bin.count),
                text::percent(bin.count as f64 / durations.count as f64),
                duration(bin.total_ns),
                text::percent(bin.total_ns as f64 / durations.total_ns.max(1) as f64),
            ]);
        }
    }
    let headers = vec!["duration", ">kernels", ">of them", ">total", ">of the time"];
    let title = over_ranks("Compute kernels by duration", analysis);
    Table { topic: Topic::Kernels, title, headers, rows, detail: true }
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn lines_are_those_of_files() {
        assert_eq!(near("a/b/train.py:12 forward"), "train.py:12 forward");
        assert_eq!(near("train.py:12 a/b"), "train.py:12 a/b");
        assert_eq!(near("<string>:1 f"), "<string>:1 f");
    }
}
