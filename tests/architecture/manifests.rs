//! The crates of the workspace: what each uses of the others, by its manifest, and what it may use, by the table of rooms
//! in ARCHITECTURE.md. Dependencies of tests do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use toml::Table;

/// How our crates are called.
const OURS: &str = "stepscope-";

/// What crates use and may not, and crates that are not in the table.
pub(crate) fn wrong(root: &Path) -> Vec<String> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let workspace = manifest(&text("Cargo.toml"));
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| format!("{}/Cargo.toml", member.as_str().unwrap()));
    let manifests: Vec<Table> = members.chain(["Cargo.toml".into()]).map(|path| manifest(&text(&path))).collect();
    beyond(&rooms(&text("ARCHITECTURE.md")), &manifests)
}

fn manifest(text: &str) -> Table {
    text.parse().unwrap()
}

/// What each crate may use of ours; none, where it may use all.
type Rooms = BTreeMap<String, Option<BTreeSet<String>>>;

/// The table of rooms: its second column has the crate, and its last one what that may use.
fn rooms(architecture: &str) -> Rooms {
    let mut rooms = Rooms::new();
    for line in architecture.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, name, _, uses] = cells[..] else { continue };
        let Some(name) = name.split(' ').next().filter(|name| name.starts_with("stepscope")) else { continue };
        let named = uses.split(", ").filter(|name| *name != "nothing of ours");
        let named = (uses != "all").then(|| named.map(|name| format!("{OURS}{name}")).collect());
        rooms.insert(name.to_owned(), named);
    }
    rooms
}

fn beyond(rooms: &Rooms, manifests: &[Table]) -> Vec<String> {
    let mut wrong = Vec::new();
    for manifest in manifests {
        let name = manifest["package"]["name"].as_str().unwrap();
        let Some(may_use) = rooms.get(name) else {
            wrong.push(format!("{name} is in no room"));
            continue;
        };
        let uses = used(manifest);
        let beyond = uses.iter().filter(|used| may_use.as_ref().is_some_and(|may_use| !may_use.contains(*used)));
        wrong.extend(beyond.map(|used| format!("{name} uses {used}")));
    }
    wrong
}

/// The crates of ours that one is made with, on any platform.
fn used(manifest: &Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let targets = targets.into_iter().flat_map(|targets| targets.values()).filter_map(|target| target.as_table());
    let tables = [manifest].into_iter().chain(targets).flat_map(|table| {
        ["dependencies", "build-dependencies"].into_iter().filter_map(|kind| table.get(kind)?.as_table())
    });
    tables.flat_map(Table::keys).filter(|name| name.starts_with(OURS)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crate_uses_beyond_its_room_is_found() {
        let rooms = rooms(
            "| room | crate | what lives there | may use |\n|---|---|---|---|\n\
             | `plan/` | stepscope-plan | arithmetic | nothing of ours |\n\
             | `tui/` | stepscope-tui | views | plan, traces |\n\
             | `src/` | stepscope (binary) | the command line | all |",
        );
        let crate_of = |name: &str, rest: &str| manifest(&format!("[package]\nname = \"{name}\"\n{rest}"));
        let fine = [
            crate_of("stepscope-plan", "[dev-dependencies]\nstepscope-tui.workspace = true"),
            crate_of("stepscope-tui", "[dependencies]\nserde = \"1\"\nstepscope-plan = { path = \"..\" }"),
            crate_of("stepscope", "[dependencies]\nstepscope-tui.workspace = true"),
        ];
        assert_eq!(beyond(&rooms, &fine), [""; 0]);
        let wrong = [
            crate_of("stepscope-plan", "[build-dependencies]\nstepscope-traces.workspace = true"),
            crate_of("stepscope-tui", "[target.'cfg(unix)'.dependencies]\nstepscope-trainer.workspace = true"),
            crate_of("stepscope-more", ""),
        ];
        let expected = [
            "stepscope-plan uses stepscope-traces",
            "stepscope-tui uses stepscope-trainer",
            "stepscope-more is in no room",
        ];
        assert_eq!(beyond(&rooms, &wrong), expected);
    }
}
