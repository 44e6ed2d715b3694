use std::path::{Component, Path, PathBuf};

use crate::page::Page;

/// Links of a page that lead nowhere. Those to other sites are not followed.
pub(crate) fn wrong(page: &Page, root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for link in &page.links {
        if let Err(why) = follow(page, &link.target, root) {
            wrong.push(format!("{}: {} {why}", page.place(link.line), link.target));
        }
    }
    wrong
}

fn follow(page: &Page, target: &str, root: &Path) -> Result<(), String> {
    if target.starts_with("https://") {
        return Ok(());
    }
    if target.contains("://") || target.starts_with('/') {
        return Err("is neither relative nor https".into());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.path.clone() } else { plain(&page.path.with_file_name(file)) };
    if !path.exists() || !path.starts_with(root) {
        return Err("does not exist".into());
    }
    let book = root.join("docs/src");
    if page.path.starts_with(&book) && !path.starts_with(&book) {
        return Err("is not in the book, where it would lead nowhere".into());
    }
    let known = |anchor: &str| Page::read(&path).anchors.iter().any(|other| other == anchor);
    if anchor.is_some_and(|anchor| !known(anchor)) {
        return Err("has no such heading".into());
    }
    Ok(())
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}
