//! What reports for a browser have in common: one file that asks nothing of the network, tables that sort, plots.

pub(crate) mod chart;
pub(crate) mod flame;
pub(crate) mod lines;
pub(crate) mod scatter;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use stepscope_plan::text;

use super::table::Table;

/// The scripts of every page.
const SCRIPTS: [&str; 2] = [include_str!("timeline.js"), include_str!("script.js")];

/// Longer tables can be folded.
const SHORT: usize = 16;
/// Tables with more columns take the whole width of a page.
const NARROW: usize = 5;

/// A whole page around its sections, which are listed beside them.
pub(crate) fn page(title: &str, head: &str, sections: &[Section]) -> String {
    let contents: String = sections.iter().map(Section::link).collect();
    let sections: String = sections.iter().map(Section::written).collect();
    let scripts: String = SCRIPTS.iter().map(|script| format!("<script type=\"module\">{script}</script>\n")).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} · stepscope</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n<nav aria-label=\"Contents\">\n\
         <input type=\"search\" placeholder=\"search ( / )\" aria-label=\"Search kernels, operators and modules\">\n\
         <output></output>\n<ul>\n{contents}</ul>\n</nav>\n<main>\n{head}{sections}<footer>stepscope {}</footer>\n</main>\n\
         {scripts}</body>\n</html>\n",
        policy(),
        escaped(title),
        include_str!("style.css"),
        env!("CARGO_PKG_VERSION"),
    )
}

/// What a browser lets a page do: run these scripts and no other, and ask nothing of anybody. So even a name that got into
/// the page as more than text does nothing.
fn policy() -> String {
    let hashes = SCRIPTS.map(|script| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script))));
    format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    )
}

/// Small plots and tables, as many beside each other as there is room for.
pub(crate) fn beside(plots: &str) -> String {
    if plots.is_empty() { String::new() } else { format!("<div class=\"plots\">\n{plots}</div>\n") }
}

/// A part of a page.
pub(crate) struct Section {
    title: String,
    contents: String,
}

impl Section {
    /// None, if there is nothing in it.
    pub(crate) fn new(title: &str, contents: String) -> Option<Section> {
        (!contents.is_empty()).then(|| Section { title: title.to_owned(), contents })
    }

    /// What it is called in addresses.
    fn anchor(&self) -> String {
        self.title.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    fn link(&self) -> String {
        format!("<li><a href=\"#{}\">{}</a></li>\n", self.anchor(), escaped(&self.title))
    }

    fn written(&self) -> String {
        let Section { title, contents } = self;
        format!("<section id=\"{}\">\n<h2>{}</h2>\n{contents}</section>\n", self.anchor(), escaped(title))
    }
}

/// A text in a script ends where it says so, and nowhere else.
pub(crate) fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A table, which sorts by the column that is clicked.
pub(crate) fn table<H: AsRef<str>>(table: &Table<H>) -> String {
    let side = |column: usize| if table.is_right(column) { " class=\"right\"" } else { "" };
    let mut text = String::from("<div class=\"wide\"><table><thead><tr>");
    for column in 0..table.headers.len() {
        text += &format!("<th{}><button>{}</button></th>", side(column), escaped(table.header(column)));
    }
    text += "</tr></thead><tbody>\n";
    for row in &table.rows {
        text += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            text += &format!("<td{}>{}</td>", side(column), escaped(&text::shortened(cell, text::LONGEST_NAME)));
        }
        text += "</tr>\n";
    }
    text += "</tbody></table></div>\n<button class=\"copy\" hidden>copy as CSV</button>\n";
    let title = escaped(&table.title);
    if table.detail || table.rows.len() > SHORT {
        let open = if table.detail { "" } else { " open" };
        format!("<details{open}><summary>{title}</summary>\n{text}</details>\n")
    } else {
        let class = if table.headers.len() > NARROW { "block whole" } else { "block" };
        format!("<div class=\"{class}\">\n<h3>{title}</h3>\n{text}</div>\n")
    }
}

/// Text in which `commands` and `options` stand in backticks, which become code.
pub(crate) fn prose(text: &str) -> String {
    let escaped = escaped(text);
    let pieces: Vec<&str> = escaped.split('`').collect();
    // One that is not closed is a character as any other.
    if pieces.len().is_multiple_of(2) {
        return escaped;
    }
    let piece = |(index, piece): (usize, &&str)| match index % 2 {
        0 => (*piece).to_owned(),
        _ => format!("<code>{piece}</code>"),
    };
    pieces.iter().enumerate().map(piece).collect()
}

/// Text that is shown as it is.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text::printable(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_backticks_is_code() {
        assert_eq!(
            prose("try `torch.compile` & `--fused`"),
            "try <code>torch.compile</code> &amp; <code>--fused</code>"
        );
        assert_eq!(prose("`<b>`"), "<code>&lt;b&gt;</code>");
        assert_eq!(prose("a ` alone"), "a ` alone");
        assert_eq!(prose(""), "");
    }
}
