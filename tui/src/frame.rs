//! What is around every view: what was run and how it is at the top, keys at the bottom.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use stepscope_plan::text;
use stepscope_traces::{Nanos, State};

use crate::{
    data::{Snapshot, Stage},
    keys::{self, Action, Binding},
    notice::Notice,
    scene::Scene,
    theme::Theme,
    view::View,
    views,
    widgets::{below, centered, fitting, right_of, row, say, say_right},
};

/// Data that is so old makes one look.
const OLD: Nanos = Nanos(5 * Nanos::SECOND.0);
const VERY_OLD: Nanos = Nanos(30 * Nanos::SECOND.0);

/// Where things are.
#[derive(Default)]
pub(crate) struct FrameAreas {
    /// The titles of the views.
    pub(crate) tabs: Vec<(Rect, View)>,
    /// The view.
    pub(crate) body: Rect,
    /// Keys, and what they ask for.
    pub(crate) keys: Vec<(Rect, Action)>,
}

/// Draws what is around a view, and says where that goes. What there is to say stands where keys would.
pub(crate) fn draw(
    scene: &Scene<'_>,
    view: View,
    is_frozen: bool,
    notice: Option<&Notice>,
    (area, buffer): (Rect, &mut Buffer),
) -> FrameAreas {
    let theme = scene.theme;
    draw_run(scene, is_frozen, row(area, 0), buffer);
    draw_facts(scene, is_frozen, row(area, 1), buffer);
    let mut top = 2;
    if let Some(lost) = loss(scene.snapshot) {
        say(buffer, row(area, top), Line::styled(format!(" {lost}"), theme.bad()));
        top += 1;
    }
    let tabs = draw_tabs(view, theme, row(area, top), buffer);
    let rest = below(area, top + 1);
    let body = Rect { height: rest.height.saturating_sub(1), ..rest };
    let bottom = below(rest, body.height);
    let keys = match notice {
        Some(notice) => {
            say(buffer, bottom, notice.line(theme));
            Vec::new()
        }
        None => draw_keys(view, theme, bottom, buffer),
    };
    FrameAreas { tabs, body, keys }
}

/// What is lost: nobody may take figures for more than they are.
fn loss(snapshot: &Snapshot) -> Option<String> {
    let lost = &snapshot.loss;
    (!lost.is_none()).then(|| format!("LOST {}; figures cover what remains", lost.words()))
}

/// The run, what became of it, and how old the newest of it is.
fn draw_run(scene: &Scene<'_>, is_frozen: bool, place: Rect, buffer: &mut Buffer) {
    let (snapshot, theme) = (scene.snapshot, scene.theme);
    let Some(run) = &snapshot.run else {
        say(buffer, place, Line::from(vec![Span::styled(" stepscope", theme.title())]));
        return;
    };
    // What is frozen grows old, whatever the run does.
    let is_followed = run.state == State::Recording && !is_frozen;
    let age = snapshot.newest.filter(|_| is_followed).map(|newest| Nanos((scene.now - newest).0.max(0)));
    let (style, shape, word) = match run.state {
        // Programs take a while until they do anything.
        _ if run.ranks.is_empty() => (theme.quiet(), '○', "starting"),
        State::Recording if snapshot.hang().is_some() => (theme.bad(), '✖', "hanging"),
        State::Recording if age.is_some_and(|age| age >= VERY_OLD) => (theme.bad(), '●', "no progress"),
        state => {
            let (style, shape) = theme.state(state);
            (style, shape, state.word())
        }
    };
    let mut right = Vec::new();
    if is_followed {
        right.push(match age {
            None => Span::styled("nothing recorded yet ", theme.quiet()),
            Some(age) if age < OLD => Span::styled(format!("newest data {} old ", text::age(age.0)), theme.quiet()),
            Some(age) if age < VERY_OLD => {
                Span::styled(format!("newest data {} old ", text::age(age.0)), theme.warning())
            }
            Some(age) => Span::styled(format!("NO NEW DATA for {} ", text::age(age.0)), theme.bad()),
        });
    }
    let state = Span::styled(format!("  {shape} {word}"), style);
    let age_width: usize = right.iter().map(Span::width).sum();
    let mut room = usize::from(place.width).saturating_sub(age_width + state.width() + 2);
    let name = text::shortened(&text::printable(&run.name), room.max(1));
    room = room.saturating_sub(name.chars().count());
    let mut left = vec![Span::raw(" "), Span::styled(name, theme.strong()), state];
    // What does not fit is left out as a whole, and so is what comes after it.
    let progress = fitting(progress(scene, age), room as u16);
    room = room.saturating_sub(progress.width());
    left.extend(progress);
    say(buffer, place, Line::from(left));
    let folder = folder(&run.path, room.saturating_sub(FOLDER_GAP));
    let gap = if right.is_empty() { " " } else { "  " };
    right.splice(0..0, folder.map(|folder| Span::styled(format!("{folder}{gap}"), theme.quiet())));
    say_right(buffer, place, Line::from(right));
}

/// So many folders of a path are shown at most.
const MOST_FOLDERS: usize = 3;
/// How much room is around them.
const FOLDER_GAP: usize = 4;

/// Where the run is: runs may have one name. As many of its last folders as there is room for.
fn folder(path: &Path, room: usize) -> Option<String> {
    let last = |folders: usize| {
        let all: Vec<&OsStr> = path.iter().collect();
        let last: PathBuf = all[all.len().saturating_sub(folders)..].iter().collect();
        text::printable(&last.display().to_string())
    };
    (1..=MOST_FOLDERS).rev().map(last).find(|words| !words.is_empty() && words.chars().count() <= room)
}

/// How far the run is, and how far reading it is, with the newest of it so old.
fn progress(scene: &Scene<'_>, age: Option<Nanos>) -> Vec<Span<'static>> {
    let (snapshot, theme) = (scene.snapshot, scene.theme);
    let mut spans = Vec::new();
    if let Stage::Reading { done, all } = snapshot.stage {
        spans.push(Span::styled(format!("  reading {done} of {all} ranks"), theme.warning()));
    }
    let newest = snapshot.running.map(|running| running.step).or(snapshot.steps.last().map(|step| step.step));
    if let Some(step) = newest {
        let incomplete = if scene.is_cut_off(step) { ", incomplete" } else { "" };
        spans.push(Span::raw(format!("  step {step}{incomplete}")));
        // Steps count from 0, and people from 1.
        let made = u64::try_from(step.0).map_or(0, |step| step + 1);
        let planned = snapshot.run.as_ref().and_then(|run| run.planned_steps).filter(|planned| made <= *planned);
        let of = planned.map(|planned| format!(" ({} of {})", text::count(made), text::count(planned)));
        spans.extend(of.map(Span::raw));
    }
    if let Some(running) = snapshot.running {
        // It goes on while nothing is recorded.
        let elapsed = text::duration(running.elapsed_ns.saturating_add(age.map_or(0, |age| age.0)));
        spans.push(Span::styled(format!("  running for {elapsed}"), theme.quiet()));
    }
    spans
}

/// What was run; what figures are of.
fn draw_facts(scene: &Scene<'_>, is_frozen: bool, place: Rect, buffer: &mut Buffer) {
    let theme = scene.theme;
    let Some(run) = &scene.snapshot.run else { return };
    let mut right = Vec::new();
    if is_frozen {
        right.push(Span::styled("FROZEN", theme.warning()));
    }
    if let Some(rank) = scene.focus {
        right.push(Span::styled(format!("rank {rank}"), theme.warning()));
    }
    if let Some(step) = scene.awaits {
        right.push(Span::styled(format!("reading step {step}"), theme.warning()));
    } else if scene.snapshot.analysis.is_some() {
        right.push(Span::styled(format!("figures: {}", scene.scope()), theme.quiet()));
    }
    let mut spaced = Vec::new();
    for span in right {
        spaced.extend([span, Span::raw("  ")]);
    }
    if let Some(last) = spaced.last_mut() {
        *last = Span::raw(" ");
    }
    let right = Line::from(spaced);
    let room = usize::from(place.width).saturating_sub(right.width() + 3);
    let mut words = vec![text::ranks(run.ranks.len() as u64, run.world_size)];
    words.extend(text::what_was_run(
        run.model.as_ref(),
        scene.layout().map(|layout| layout.words()),
        run.source.other_tool(),
    ));
    words.extend(run.device.as_ref().map(|device| device.name.clone()));
    // What does not fit is left out from the end, as a whole.
    let mut facts = String::new();
    for word in words.iter().map(|word| text::printable(word)) {
        let more = if facts.is_empty() { word } else { format!("{facts} · {word}") };
        if more.chars().count() > room && !facts.is_empty() {
            break;
        }
        facts = more;
    }
    say(buffer, place, Line::styled(format!(" {facts}"), theme.quiet()));
    say_right(buffer, place, right);
}

/// The titles of the views, with their numbers.
fn draw_tabs(current: View, theme: &Theme, place: Rect, buffer: &mut Buffer) -> Vec<(Rect, View)> {
    buffer.set_style(place, theme.quiet());
    let mut tabs = Vec::new();
    let mut x = place.x;
    for (view, title) in titles(current, place.width.into()) {
        let width = title.chars().count() as u16;
        let tab = Rect { x, width, ..place }.intersection(place);
        let style = if view == current { theme.chosen().patch(theme.strong()) } else { theme.quiet() };
        say(buffer, tab, Line::styled(title, style));
        tabs.push((tab, view));
        x = x.saturating_add(width);
    }
    let line = Rect { x, width: place.right().saturating_sub(x), ..place };
    say(buffer, line, Line::styled("─".repeat(line.width.into()), theme.quiet()));
    tabs
}

/// Titles that fit into a width: of all views, short ones, numbers beside the title of the current one, or that alone.
fn titles(current: View, width: usize) -> Vec<(View, String)> {
    let numbered = || (1..).zip(View::ALL.iter().copied());
    let full = numbered().map(|(number, view)| (view, format!(" {number} {} ", view.title()))).collect();
    let short = numbered().map(|(number, view)| (view, format!(" {number} {}", view.short_title()))).collect();
    let named = |(number, view): (i32, View)| {
        let title = if view == current { format!(" {number} {} ", view.title()) } else { format!(" {number}") };
        (view, title)
    };
    let fits = |titles: &Vec<(View, String)>| titles.iter().map(|(_, title)| title.len()).sum::<usize>() <= width;
    let choices = [full, short, numbered().map(named).collect()];
    let alone = || numbered().filter(|(_, view)| *view == current).map(named).collect();
    choices.into_iter().find(fits).unwrap_or_else(alone)
}

/// What keys do: of the view, and everywhere, as many as there is room for; gives where each is. What comes last always
/// has its place.
fn draw_keys(view: View, theme: &Theme, place: Rect, buffer: &mut Buffer) -> Vec<(Rect, Action)> {
    let shown: Vec<&Binding> = keys::all(views::bindings(view)).filter(|key| !key.short.is_empty()).collect();
    let groups: Vec<&[&Binding]> = shown.chunk_by(|one, other| one.short == other.short).collect();
    // A space before each key, and around the word.
    let width = |group: &[&Binding]| {
        let keys: usize = group.iter().map(|binding| 1 + binding.first_name().chars().count()).sum();
        keys + group[0].short.chars().count() + 2
    };
    let (rest, last) = groups.split_at(groups.len().saturating_sub(2));
    let mut room = usize::from(place.width).saturating_sub(last.iter().map(|group| width(group)).sum());
    let fits = |group: &&[&Binding]| match room.checked_sub(width(group)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    let mut drawn = Vec::new();
    let mut left = place;
    for group in rest.iter().copied().filter(fits).chain(last.iter().copied()).collect::<Vec<_>>() {
        for binding in group {
            let words = format!(" {}", binding.first_name());
            let key = Rect { width: words.chars().count() as u16, ..left }.intersection(place);
            say(buffer, key, Line::styled(words, theme.strong()));
            drawn.push((key, binding.action));
            left = right_of(left, key.width);
        }
        let words = format!(" {} ", group[0].short);
        let word = Rect { width: words.chars().count() as u16, ..left }.intersection(place);
        say(buffer, word, Line::styled(words, theme.quiet()));
        // The word is the key's, where there is one.
        if let ([_], Some((key, _))) = (group, drawn.last_mut()) {
            key.width = (key.width + word.width).min(place.right().saturating_sub(key.x));
        }
        left = right_of(left, word.width);
    }
    drawn
}

/// Says what there is instead of a view, if there is nothing to show in one.
pub(crate) fn draw_message(scene: &Scene<'_>, body: Rect, buffer: &mut Buffer) -> bool {
    let (snapshot, theme) = (scene.snapshot, scene.theme);
    let lines: Vec<(String, Style)> = match &snapshot.stage {
        Stage::Failed(why) => {
            let width = usize::from(body.width).saturating_sub(4).max(1);
            let why: Vec<String> = why.lines().flat_map(|line| text::wrapped(&text::printable(line), width)).collect();
            std::iter::once(("Cannot read this".to_owned(), theme.bad()))
                .chain(why.into_iter().map(|line| (line, Style::new())))
                .collect()
        }
        _ if snapshot.analysis.is_some() || !snapshot.memory.is_empty() => return false,
        Stage::Waiting(what) => vec![
            (format!("Waiting for {}", text::printable(what)), theme.strong()),
            ("It opens as soon as the run starts.".into(), theme.quiet()),
            ("Start one with `stepscope train` or `stepscope record -- COMMAND`.".into(), theme.quiet()),
        ],
        Stage::Reading { done, all } => {
            let filled = if *all > 0 { 30 * done / all } else { 0 };
            vec![
                (format!("Reading {done} of {}", text::counted(*all as u64, "rank")), theme.strong()),
                (format!("{}{}", "█".repeat(filled), "░".repeat(30 - filled.min(30))), theme.title()),
            ]
        }
        Stage::Following => vec![
            ("The run has started, but nothing is recorded yet".into(), theme.strong()),
            ("Data appears here within half a second.".into(), theme.quiet()),
        ],
        Stage::Read => vec![
            ("Nothing was recorded".into(), theme.strong()),
            ("The run has ranks, but they contain no spans and no memory events.".into(), theme.quiet()),
        ],
    };
    let place = centered(body, body.width, lines.len() as u16);
    for (index, (line, style)) in lines.into_iter().enumerate() {
        say(buffer, row(place, index as u16), Line::styled(line, style).centered());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_as_many_of_its_parents_as_fit() {
        let path = Path::new("/home/ann/traces/samples/tp2");
        let words = [40, 18, 17, 11, 3, 2].map(|room| folder(path, room));
        let some = |words: &str| Some(words.to_owned());
        let whole = some("traces/samples/tp2");
        assert_eq!(words, [whole.clone(), whole, some("samples/tp2"), some("samples/tp2"), some("tp2"), None]);
        assert_eq!(folder(Path::new("runs/one"), 40), some("runs/one"));
        assert_eq!(folder(Path::new(""), 40), None);
    }

    #[test]
    fn titles_fit_and_name_the_current_view() {
        for current in View::ALL {
            let named = |width| titles(*current, width);
            let width = |titles: &[(View, String)]| titles.iter().map(|(_, title)| title.len()).sum::<usize>();
            assert!(named(120).iter().all(|(view, title)| title.contains(view.title())));
            assert!(named(80).iter().all(|(view, title)| title.contains(view.short_title())));
            for room in [40, 80, 120] {
                assert_eq!(named(room).len(), View::ALL.len(), "{room}");
                assert!(width(&named(room)) <= room, "{room}");
            }
            for room in [1, 20, 40] {
                assert!(named(room).iter().any(|(view, title)| view == current && title.contains(current.title())));
            }
        }
    }
}
