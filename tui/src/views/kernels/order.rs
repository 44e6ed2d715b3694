//! By what the lines of the table are sorted.

use std::cmp::Reverse;

use super::{columns, group::Group, grouping::Grouping, roof};

/// By what the lines of the table are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The most time first.
    #[default]
    Total,
    /// Those that ran most often.
    Count,
    /// Those of which one takes longest.
    Mean,
    /// Those that compute most in a second.
    Rate,
    /// Those that are farthest from what they could be, before those of which that is not known.
    Roof,
    /// By the alphabet.
    Name,
}

impl Order {
    const ALL: [Order; 6] = [Order::Total, Order::Count, Order::Mean, Order::Rate, Order::Roof, Order::Name];

    /// Those of columns that have something to say of some groups; modules stay as they are in each other.
    fn all(grouping: Grouping, groups: &[Group<'_>]) -> Vec<Order> {
        let is_known = |order: &Order| columns::has_something(order.column(), groups, false);
        let sorts = grouping != Grouping::Module;
        Order::ALL.into_iter().filter(|order| sorts && is_known(order)).collect()
    }

    /// It, or another one where groups have no column for it.
    pub(super) fn within(self, grouping: Grouping, groups: &[Group<'_>]) -> Option<Order> {
        let all = Order::all(grouping, groups);
        if all.contains(&self) { Some(self) } else { all.first().copied() }
    }

    /// The one after it, around the end.
    pub(super) fn next(self, grouping: Grouping, groups: &[Group<'_>]) -> Order {
        let all = Order::all(grouping, groups);
        let place = self.within(grouping, groups).and_then(|now| all.iter().position(|order| *order == now));
        place.map_or(self, |place| all[(place + 1) % all.len()])
    }

    /// The column it is about.
    pub(super) fn column(self) -> usize {
        match self {
            Order::Total => columns::TOTAL,
            Order::Count => columns::COUNT,
            Order::Mean => columns::MEAN,
            Order::Rate => columns::RATE,
            Order::Roof => columns::ROOF,
            Order::Name => columns::NAME,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Order::Total => "total time",
            Order::Count => "count",
            Order::Mean => "mean time",
            Order::Rate => "FLOP/s",
            Order::Roof => "distance from the roofline",
            Order::Name => "name",
        }
    }

    /// Sorts groups, which are given with the most time first; those that are alike stay so.
    pub(super) fn sort(self, groups: &mut [Group<'_>]) {
        match self {
            Order::Total => {}
            Order::Count => groups.sort_by_key(|group| Reverse(group.count)),
            Order::Mean => groups.sort_by(|one, other| {
                let mean = |group: &Group<'_>| group.kernel().map_or(-1.0, |kernel| kernel.mean_ns);
                mean(other).total_cmp(&mean(one))
            }),
            Order::Rate => groups.sort_by(|one, other| {
                let rate = |group: &Group<'_>| group.rates.flops_per_second.unwrap_or(-1.0);
                rate(other).total_cmp(&rate(one))
            }),
            Order::Roof => groups.sort_by(|one, other| {
                let share = |group: &Group<'_>| roof::share(&group.rates).unwrap_or(f64::INFINITY);
                share(one).total_cmp(&share(other))
            }),
            Order::Name => groups.sort_by(|one, other| one.name.cmp(&other.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_analyzer::{KernelFigures, KernelRates};
    use stepscope_traces::Family;

    use super::*;

    fn kernel(name: &str, count: u64, total_ns: i64, rate: Option<f64>, roof_share: Option<f64>) -> KernelFigures {
        KernelFigures {
            name: name.into(),
            family: Family::Other,
            library: None,
            precision: None,
            tile: None,
            count,
            total_ns,
            mean_ns: total_ns as f64 / count as f64,
            share: 0.1,
            least_rank_ns: 0,
            most_rank_ns: total_ns,
            rates: KernelRates { flops_per_second: rate, roof_share, ..KernelRates::default() },
        }
    }

    #[test]
    fn every_order_puts_what_it_is_about_first() {
        let all = [
            kernel("b", 1, 90, None, None),
            kernel("c", 10, 80, Some(2.0), Some(0.9)),
            kernel("a", 4, 70, Some(5.0), Some(0.1)),
        ];
        let sorted = |order: &Order| {
            let mut groups: Vec<Group<'_>> = all.iter().map(Group::of_name).collect();
            order.sort(&mut groups);
            groups.iter().map(|group| group.name.as_ref()).collect::<String>()
        };
        let groups: Vec<Group<'_>> = all.iter().map(Group::of_name).collect();
        let orders: Vec<String> = Order::all(Grouping::Kernel, &groups).iter().map(sorted).collect();
        assert_eq!(orders, ["bca", "cab", "bac", "acb", "acb", "abc"]);
    }

    #[test]
    fn groups_have_orders_for_their_columns() {
        let all = [kernel("a", 1, 90, None, None), kernel("b", 2, 80, None, None)];
        let groups: Vec<Group<'_>> = all.iter().map(Group::of_name).collect();
        let after = |order: Order| order.next(Grouping::Kernel, &groups);
        assert_eq!(after(Order::Mean), Order::Name, "nobody knows how fast they are, or could be");
        assert_eq!(after(Order::Name), Order::Total);
        assert_eq!(Order::Rate.within(Grouping::Kernel, &groups), Some(Order::Total));
        assert_eq!(Order::Mean.within(Grouping::Operator, &[]), Some(Order::Total));
        assert_eq!(Order::Count.within(Grouping::Module, &groups), None);
        assert_eq!(Order::Count.next(Grouping::Module, &groups), Order::Count);
    }
}
