//! What reports for a browser have in common: one file that asks nothing of the network, tables that sort, plots.

pub(crate) mod chart;
pub(crate) mod timeline;

use stepscope_plan::text;

use super::table::Table;

/// Longer tables can be folded.
const SHORT: usize = 16;

/// A whole page around its contents.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{} · stepscope</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n{body}<footer>stepscope {}</footer>\n<script>\n{}</script>\n</body>\n</html>\n",
        escaped(title),
        include_str!("style.css"),
        env!("CARGO_PKG_VERSION"),
        include_str!("script.js"),
    )
}

/// A part of a page, if there is anything in it.
pub(crate) fn section(title: &str, contents: &str) -> String {
    if contents.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{title}</h2>\n{contents}</section>\n")
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
            text += &format!("<td{}>{}</td>", side(column), escaped(cell));
        }
        text += "</tr>\n";
    }
    text += "</tbody></table></div>\n";
    let title = escaped(&table.title);
    if table.detail || table.rows.len() > SHORT {
        let open = if table.detail { "" } else { " open" };
        format!("<details{open}><summary>{title}</summary>\n{text}</details>\n")
    } else {
        format!("<h3>{title}</h3>\n{text}")
    }
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
