use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page in Markdown.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Its first heading.
    pub(crate) title: Option<String>,
    /// What links can lead to, besides its beginning.
    pub(crate) anchors: Vec<String>,
    pub(crate) links: Vec<Link>,
    pub(crate) blocks: Vec<Block>,
}

/// A link or a picture.
pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) line: usize,
}

/// A fenced block of code.
pub(crate) struct Block {
    pub(crate) language: String,
    /// What stands behind the language.
    pub(crate) words: Vec<String>,
    pub(crate) line: usize,
    /// Where its fences begin and end.
    pub(crate) whole: Range<usize>,
    /// Where the text between the fences is.
    pub(crate) inside: Range<usize>,
}

impl Block {
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// What it needs that tests do not have.
    pub(crate) fn needs(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("needs-"))
    }

    /// The value of a word such as `head=5`.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

impl Page {
    pub(crate) fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Page::of(path, text)
    }

    fn of(path: &Path, text: String) -> Page {
        let mut page = Page {
            path: path.to_owned(),
            text,
            title: None,
            anchors: Vec::new(),
            links: Vec::new(),
            blocks: Vec::new(),
        };
        let mut heading: Option<String> = None;
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        for (event, range) in Parser::new_ext(&page.text, options).into_offset_iter() {
            let line = 1 + page.text[..range.start].matches('\n').count();
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let heading = heading.take().unwrap_or_default();
                    let anchor = unused(&anchor(&heading), &page.anchors);
                    page.anchors.push(anchor);
                    page.title.get_or_insert(heading);
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link { target: dest_url.into_string(), line });
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    page.blocks.push(block(&info, &page.text, range, line));
                }
                _ => {}
            }
        }
        page
    }

    pub(crate) fn inside(&self, block: &Block) -> &str {
        &self.text[block.inside.clone()]
    }

    /// Where a line of it is, for people.
    pub(crate) fn place(&self, line: usize) -> String {
        let path = self.path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&self.path);
        format!("{}:{line}", path.display())
    }
}

fn block(info: &str, text: &str, whole: Range<usize>, line: usize) -> Block {
    let mut words = info.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned);
    let within = &text[whole.clone()];
    let first = within.find('\n').map_or(within.len(), |end| end + 1);
    let last = within.trim_end().rfind('\n').map_or(first, |end| end + 1);
    let inside = whole.start + first..whole.start + last.max(first);
    Block { language: words.next().unwrap_or_default(), words: words.collect(), line, whole, inside }
}

/// What a heading is called in links, on GitHub and in the book.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The same, with a number if another heading has that name.
fn unused(anchor: &str, used: &[String]) -> String {
    let numbered = (1..).map(|number| format!("{anchor}-{number}"));
    let mut names = [anchor.to_owned()].into_iter().chain(numbered);
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_links_and_blocks_of_a_page() {
        let text =
            "# A `b` C, d!\n\n[x](y.md#z)\n\n## E\n## E\n\n```sh needs-gpu head=3\none\ntwo\n```\n\n```text\n```\n";
        let page = Page::of(Path::new("page.md"), text.into());
        assert_eq!(page.title.as_deref(), Some("A b C, d!"));
        assert_eq!(page.anchors, ["a-b-c-d", "e", "e-1"]);
        assert_eq!((page.links[0].target.as_str(), page.links[0].line), ("y.md#z", 3));
        let [shell, output] = &page.blocks[..] else { panic!("{} blocks", page.blocks.len()) };
        assert_eq!((shell.language.as_str(), shell.needs(), shell.value("head")), ("sh", Some("gpu"), Some("3")));
        assert_eq!((page.inside(shell), page.inside(output)), ("one\ntwo\n", ""));
    }
}
