//! Time and waiting by where ranks run.

use std::cmp::Reverse;

use stepscope_analyzer::{Analysis, PlaceFigures};

use super::tables::Room;
use crate::{
    folded,
    render::table::{Table, Topic, duration, known},
};

/// Kinds of places of which there are several, those that others wait for first.
pub(super) fn table(analysis: &Analysis, room: Room) -> Table {
    let kinds = analysis.places.chunk_by(|one, other| (one.kind, one.level) == (other.kind, other.level));
    // One rank at each place is told by rank.
    let is_several = |places: &&[PlaceFigures]| places.len() > 1 && places.iter().any(|place| place.ranks.len() > 1);
    let rows = kinds.filter(is_several).flat_map(|places| {
        let mut places: Vec<&PlaceFigures> = places.iter().collect();
        places.sort_by_key(|place| Reverse(place.caused_wait_ns));
        places.into_iter().take(room.ranks).map(|place| row(analysis, place))
    });
    let headers = vec!["place", "ranks", ">step", ">compute", ">idle", ">caused waiting", ">waited"];
    let title = "Mean step and total waiting in collectives by place, worst first".into();
    Table { topic: Topic::Communication, title, headers, rows: rows.collect(), detail: false }
}

fn row(analysis: &Analysis, place: &PlaceFigures) -> Vec<String> {
    vec![
        analysis.place_name(place),
        folded::named(&place.ranks),
        duration(place.mean(|partition| partition.span_ns)),
        duration(place.mean(|partition| partition.compute_ns)),
        duration(place.mean(|partition| partition.idle_ns)),
        known(place.caused_wait_ns, duration),
        known(place.wait_ns, duration),
    ]
}
