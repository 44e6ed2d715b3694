//! What takes the time, by name or by who launched it: how often, how long, how near to what the device can do.

mod columns;
mod detail;
mod families;
mod group;
mod grouping;
mod members;
mod order;
mod roof;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
    text::{Line, Span},
};
use stepscope_analyzer::Analysis;

use self::{
    columns::{cells, columns, has_something},
    group::Group,
    grouping::Grouping,
    order::Order,
};
use super::{StepOrRank, ViewBody};
use crate::{
    filter::Filter,
    keys::{Action, Binding, list_keys},
    scene::Scene,
    widgets::{Cursor, Table, below, fitting, row, say, say_right},
};

/// The key that groups kernels in another way.
const GROUP: char = 'b';

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = list_keys![
    "select",
    Binding { keys: &[KeyCode::Char('/')], action: Action::Filter, short: "filter", long: "filter by name or family" },
    Binding { keys: &[KeyCode::Char('s')], action: Action::Sort, short: "sort", long: "sort by the next column" },
    // The title has its word, where there is more than one way.
    Binding {
        keys: &[KeyCode::Char(GROUP)],
        action: Action::Group,
        short: "",
        long: "group by operator, shapes, module or line, where they are known",
    },
];

/// What takes the time, by name or by who launched it.
#[derive(Default)]
pub(crate) struct Kernels {
    filter: Filter,
    grouping: Grouping,
    order: Order,
    cursor: Cursor,
    /// Where lines are, and which is the first, for the mouse.
    lines: Rect,
    first: usize,
}

impl ViewBody for Kernels {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let theme = scene.theme;
        let Some(analysis) = scene.snapshot.analysis.as_deref().filter(|analysis| !analysis.kernels.is_empty()) else {
            let words = " no kernels were recorded";
            say(buffer, row(area, 0), Line::styled(words, theme.quiet()));
            return;
        };
        let grouping = self.grouping.within(analysis);
        let all = grouping.groups(analysis);
        let order = self.order.within(grouping, &all);
        let several = analysis.ranks.len() > 1;
        let columns = columns(grouping, order.map(Order::column));
        let columns = Table::new(theme, &columns, |column| has_something(column, &all, several), area.width);
        let (longest, count) = (all.iter().map(|group| group.share).fold(0.0, f64::max), all.len());
        let mut groups: Vec<Group<'_>> = all.into_iter().filter(|group| self.is_asked_for(group)).collect();
        if let Some(order) = order {
            order.sort(&mut groups);
        }
        families::draw(scene, area, buffer);
        let table = below(area, families::HEIGHT + 1);
        let detail = detail::height(table.height, grouping);
        let lines = below(Rect { height: table.height.saturating_sub(detail), ..table }, 1);
        let seen = self.cursor.seen(groups.len(), lines.height.into());
        (self.lines, self.first) = (lines, seen.start);
        let title = row(area, families::HEIGHT);
        let hidden = groups.len() - seen.end;
        let more = if hidden > 0 { format!(" ↓ {hidden} more ") } else { String::new() };
        let left = Rect { width: title.width.saturating_sub(more.chars().count() as u16), ..title };
        self.draw_title(scene, analysis, order, (groups.len(), count), left, buffer);
        say_right(buffer, title, Line::styled(more, theme.warning()));
        columns.draw_header(buffer, row(table, 0), order.map(Order::column));
        for (line, index) in seen.enumerate() {
            let cells = cells(scene, &groups[index], &columns, longest);
            columns.draw(buffer, row(lines, line as u16), cells, self.cursor.chosen() == Some(index));
        }
        if let Some(group) = self.cursor.chosen().map(|index| &groups[index]) {
            detail::draw(scene, group, below(table, table.height - detail), buffer);
        }
    }

    fn act(&mut self, action: Action, scene: &Scene<'_>) {
        let Some(analysis) = scene.snapshot.analysis.as_deref() else { return };
        let grouping = self.grouping.within(analysis);
        match action {
            Action::Group => {
                self.grouping = grouping.next(analysis);
                self.cursor.choose(0);
            }
            Action::Sort => {
                self.order = self.order.next(grouping, &grouping.groups(analysis));
                self.cursor.choose(0);
            }
            other => self.cursor.act(other),
        }
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        Some(&mut self.filter)
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        if self.lines.contains((event.column, event.row).into()) {
            self.cursor.choose(self.first + usize::from(event.row - self.lines.y));
        }
        None
    }
}

impl Kernels {
    fn is_asked_for(&self, group: &Group<'_>) -> bool {
        let family = group.kernel().map_or("", |kernel| kernel.family.word());
        self.filter.lets_through(&[&group.name, family])
    }

    fn draw_title(
        &self,
        scene: &Scene<'_>,
        analysis: &Analysis,
        order: Option<Order>,
        (shown, all): (usize, usize),
        place: Rect,
        buffer: &mut Buffer,
    ) {
        let theme = scene.theme;
        let grouping = self.grouping.within(analysis);
        let by = match grouping {
            Grouping::Kernel => String::new(),
            other => format!(" by {}", other.words()),
        };
        let mut spans = vec![Span::styled(format!(" Kernels{by}"), theme.title())];
        let filter = self.filter.spans(theme);
        let next = Some(grouping.next(analysis)).filter(|next| *next != grouping && filter.is_empty());
        if let Some(next) = next {
            spans.push(Span::styled(format!("  {GROUP}"), theme.strong()));
            spans.push(Span::styled(format!(" group by {}", next.words()), theme.quiet()));
        }
        let ranks = analysis.ranks.len();
        let several = if ranks > 1 { format!(", sums of {ranks} ranks") } else { String::new() };
        let count = if shown == all { format!("{all}") } else { format!("{shown} of {all}") };
        // The table's head shows it too, where there is no room to say it.
        let order = order.filter(|_| next.is_none());
        let order = order.map(|order| format!(", by {}", order.words())).unwrap_or_default();
        spans.push(Span::styled(format!("  {count}{several}{order}"), theme.quiet()));
        spans.extend(filter);
        if shown == 0 {
            spans.push(Span::styled("  no match", theme.warning()));
        }
        let why = roof::why_none(analysis).map(|why| format!("  no roofline: {why}"));
        spans.extend(why.map(|why| Span::styled(why, theme.quiet())));
        say(buffer, place, fitting(spans, place.width));
    }
}
