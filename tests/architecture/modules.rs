//! What the modules of a crate use of each other, read from their tokens: `use` trees, and paths anywhere else, also in
//! macros. A re-exported name counts as a name of the module that defines it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module or a name in one, by its path from the root of the crate.
pub(crate) type ItemPath = Vec<String>;

/// The modules of a crate, by path.
pub(crate) struct Modules(BTreeMap<ItemPath, Module>);

/// What is known of a module.
#[derive(Default)]
struct Module {
    /// Paths as they are written, which begin with `crate`, `self`, `super` or a name that the module may have.
    written: BTreeSet<Vec<String>>,
    /// Names that it has from elsewhere, and from where.
    imported: BTreeMap<String, Vec<String>>,
    /// Types that it defines.
    types: Vec<String>,
    /// Types that it gives methods to.
    extended: BTreeSet<Vec<String>>,
}

/// One module uses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub(crate) from: ItemPath,
    pub(crate) to: ItemPath,
    /// As it is written there.
    pub(crate) path: String,
}

impl Modules {
    /// Reads a crate from the folder of its `lib.rs`.
    pub(crate) fn read(folder: &Path) -> Modules {
        Modules::of(&|file| fs::read_to_string(folder.join(file)).ok())
    }

    /// Reads a crate whose files somebody has.
    pub(crate) fn of(source: &dyn Fn(&str) -> Option<String>) -> Modules {
        let mut modules = Modules(BTreeMap::new());
        modules.read_file(source, &Vec::new(), "lib.rs");
        modules
    }

    fn read_file(&mut self, source: &dyn Fn(&str) -> Option<String>, path: &ItemPath, file: &str) {
        let text = source(file).unwrap_or_else(|| panic!("there is no {file}"));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{file} cannot be read: {error}"));
        let mut elsewhere = Vec::new();
        self.read_module(tokens, path, &mut elsewhere);
        for child in elsewhere {
            let beside = child.join("/") + ".rs";
            let inside = child.join("/") + "/mod.rs";
            let file = if source(&beside).is_some() { beside } else { inside };
            self.read_file(source, &child, &file);
        }
    }

    /// Reads a module; `elsewhere` are those in it that have files of their own.
    fn read_module(&mut self, tokens: TokenStream, path: &ItemPath, elsewhere: &mut Vec<ItemPath>) {
        let mut module = Module::default();
        let mut inside = Vec::new();
        read(tokens, &mut module, &mut inside);
        self.0.insert(path.clone(), module);
        for (name, body) in inside {
            let child: ItemPath = path.iter().cloned().chain([name]).collect();
            match body {
                Some(body) => self.read_module(body, &child, elsewhere),
                None => elsewhere.push(child),
            }
        }
    }

    /// The modules right inside of one.
    pub(crate) fn children(&self, parent: &[String]) -> BTreeSet<&str> {
        let is_child = |path: &&ItemPath| path.len() == parent.len() + 1 && path.starts_with(parent);
        self.0.keys().filter(is_child).map(|path| path[parent.len()].as_str()).collect()
    }

    /// Every module, the root too.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &ItemPath> {
        self.0.keys()
    }

    /// Which modules use which; none uses itself.
    pub(crate) fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for (from, module) in &self.0 {
            for written in &module.written {
                let Some(to) = self.resolve(from, written, 0).filter(|to| to != from) else { continue };
                arrows.push(Arrow { from: from.clone(), to, path: written.join("::") });
            }
        }
        arrows
    }

    /// Which modules give methods to types of which others.
    pub(crate) fn extensions(&self) -> Vec<Arrow> {
        let mut extensions = Vec::new();
        for (from, module) in &self.0 {
            for written in &module.extended {
                let Some(to) = self.resolve(from, written, 0).filter(|to| to != from) else { continue };
                extensions.push(Arrow { from: from.clone(), to, path: written.join("::") });
            }
        }
        extensions
    }

    /// Every type, and the modules that define one of that name.
    pub(crate) fn types(&self) -> BTreeMap<&str, Vec<&ItemPath>> {
        let mut types: BTreeMap<&str, Vec<&ItemPath>> = BTreeMap::new();
        for (path, module) in &self.0 {
            module.types.iter().for_each(|name| types.entry(name).or_default().push(path));
        }
        types
    }

    /// The module that has what is written; none, where it is of another crate.
    fn resolve(&self, from: &ItemPath, written: &[String], depth: usize) -> Option<ItemPath> {
        let mut at = from.clone();
        let mut rest = written;
        match written.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &written[1..]),
            "self" => rest = &written[1..],
            "super" => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            // A name that the module has, or another crate.
            name => {
                let is_here = self.children(from).contains(name) || self.0[from].imported.contains_key(name);
                is_here.then_some(())?;
            }
        }
        while let Some((name, behind)) = rest.split_first() {
            if self.children(&at).contains(name.as_str()) {
                at.push(name.clone());
                rest = behind;
                continue;
            }
            let Some(elsewhere) = self.0[&at].imported.get(name).filter(|_| depth < 8) else { break };
            let further: Vec<String> = elsewhere.iter().chain(behind).cloned().collect();
            // What it passes on of another crate is as good as its own.
            return self.resolve(&at, &further, depth + 1).or(Some(at));
        }
        Some(at)
    }
}

/// Reads tokens of a module, or of something inside of it.
fn read(tokens: TokenStream, module: &mut Module, inside: &mut Vec<(String, Option<TokenStream>)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_only(&tokens[at..]) {
            at = end_of_item(&tokens, at + 2);
            continue;
        }
        match word(&tokens, at).as_deref() {
            Some("mod") => {
                let (Some(name), Some(body)) = (word(&tokens, at + 1), tokens.get(at + 2)) else { break };
                inside.push((name, group(body, Delimiter::Brace)));
                at += 3;
            }
            Some("use") => {
                let end = (at..tokens.len()).find(|index| is_punct(&tokens[*index], ';')).unwrap_or(tokens.len());
                for (path, name) in leaves(&tokens[at + 1..end]) {
                    module.imported.extend(name.map(|name| (name, path.clone())));
                    module.written.insert(path);
                }
                at = end + 1;
            }
            Some("struct" | "enum" | "trait") => {
                module.types.extend(word(&tokens, at + 1));
                at += 2;
            }
            // Not where it is a type, such as one that is given back.
            Some("impl")
                if at == 0 || matches!(&tokens[at - 1], TokenTree::Group(_)) || is_punct(&tokens[at - 1], ';') =>
            {
                module.extended.extend(extended(&tokens[at + 1..]));
                at += 1;
            }
            Some(_) => {
                let (path, end) = path_at(&tokens, at);
                if path.len() > 1 {
                    module.written.insert(path);
                }
                at = end;
            }
            None => {
                if let TokenTree::Group(group) = &tokens[at] {
                    read(group.stream(), module, inside);
                }
                at += 1;
            }
        }
    }
}

/// Whether tokens begin with `#[cfg(test)]`.
fn is_test_only(tokens: &[TokenTree]) -> bool {
    let [hash, attribute, ..] = tokens else { return false };
    let Some(attribute) = group(attribute, Delimiter::Bracket).filter(|_| is_punct(hash, '#')) else { return false };
    attribute.to_string().replace(' ', "") == "cfg(test)"
}

/// The type that an `impl` gives methods of its own; none, where they are those of a trait.
fn extended(tokens: &[TokenTree]) -> Option<Vec<String>> {
    let mut at = behind_generics(tokens, 0);
    let (path, end) = path_at(tokens, at);
    at = behind_generics(tokens, end);
    let is_body = tokens.get(at).is_some_and(|token| group(token, Delimiter::Brace).is_some());
    ((is_body || word(tokens, at).as_deref() == Some("where")) && !path.is_empty()).then_some(path)
}

/// Behind what stands in angle brackets, if anything does.
fn behind_generics(tokens: &[TokenTree], from: usize) -> usize {
    let mut open = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        if is_punct(token, '<') {
            open += 1;
        } else if is_punct(token, '>') {
            open = open.saturating_sub(1);
        } else if open == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Where an item ends that begins there: behind its body or its semicolon. The braces of a `use` are no body.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let mut ends_with_body = true;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        ends_with_body &= word(tokens, at).as_deref() != Some("use");
        if is_punct(token, ';') || (ends_with_body && group(token, Delimiter::Brace).is_some()) {
            return at + 1;
        }
    }
    tokens.len()
}

/// The path that begins with the word there, and where it ends.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(segment) = word(tokens, at) {
        path.push(segment);
        at += 1;
        if !is_separator(tokens, at) || word(tokens, at + 2).is_none() {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// The paths of a `use` tree, each with the name that the module has it by.
fn leaves(tokens: &[TokenTree]) -> Vec<(Vec<String>, Option<String>)> {
    let mut found = Vec::new();
    for tree in tokens.split(|token| is_punct(token, ',')).filter(|tree| !tree.is_empty()) {
        let from = if is_separator(tree, 0) { 2 } else { 0 };
        let (mut path, at) = path_at(tree, from);
        let rest = if is_separator(tree, at) { &tree[at + 2..] } else { &tree[at..] };
        if let Some(inner) = rest.first().and_then(|token| group(token, Delimiter::Brace)) {
            let inner: Vec<TokenTree> = inner.into_iter().collect();
            for (mut leaf, name) in leaves(&inner) {
                if leaf == ["self"] {
                    let name = name.filter(|name| name != "self").or_else(|| path.last().cloned());
                    found.push((path.clone(), name));
                } else {
                    leaf.splice(0..0, path.iter().cloned());
                    found.push((leaf, name));
                }
            }
            continue;
        }
        let alias = (word(rest, 0).as_deref() == Some("as")).then(|| word(rest, 1)).flatten();
        let is_glob = rest.first().is_some_and(|token| is_punct(token, '*'));
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.or_else(|| path.last().cloned()).filter(|_| !is_glob);
        found.push((path, name));
    }
    found
}

fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at..at + 2), Some([one, two]) if is_punct(one, ':') && is_punct(two, ':'))
}

fn group(token: &TokenTree, delimiter: Delimiter) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.stream()),
        _ => None,
    }
}
