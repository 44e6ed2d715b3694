//! How a call of Python is written: its file, line and function.

/// A path is told from here on.
const PACKAGES: [&str; 2] = ["site-packages/", "dist-packages/"];

/// A call as people read it. Without a line it is not known where in the file.
pub(crate) fn call_text(function: &str, file: &str, line: Option<u64>) -> String {
    let file = PACKAGES.iter().find_map(|packages| file.rsplit_once(packages)).map_or(file, |(_, inner)| inner);
    match line {
        Some(line) => format!("{file}:{line} {function}"),
        None => format!("{file} {function}"),
    }
}
