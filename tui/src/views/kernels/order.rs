//! By what kernels are sorted.

use std::cmp::Reverse;

use stepscope_analyzer::KernelFigures;

/// By what kernels are sorted.
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

    /// The one after it, around the end.
    pub(super) fn next(self) -> Order {
        let place = Order::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Order::ALL[(place + 1) % Order::ALL.len()]
    }

    /// The column it is about.
    pub(super) fn column(self) -> usize {
        match self {
            Order::Total => 2,
            Order::Count => 5,
            Order::Mean => 6,
            Order::Rate => 7,
            Order::Roof => 9,
            Order::Name => 1,
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

    /// Sorts kernels, which are given with the most time first; those that are alike stay so.
    pub(super) fn sort(self, kernels: &mut [&KernelFigures]) {
        match self {
            Order::Total => {}
            Order::Count => kernels.sort_by_key(|kernel| Reverse(kernel.count)),
            Order::Mean => kernels.sort_by(|one, other| other.mean_ns.total_cmp(&one.mean_ns)),
            Order::Rate => kernels.sort_by(|one, other| {
                let rate = |kernel: &KernelFigures| kernel.rates.flops_per_second.unwrap_or(-1.0);
                rate(other).total_cmp(&rate(one))
            }),
            Order::Roof => kernels.sort_by(|one, other| {
                let share = |kernel: &KernelFigures| {
                    kernel.rates.roof_share.or(kernel.rates.peak_share).unwrap_or(f64::INFINITY)
                };
                share(one).total_cmp(&share(other))
            }),
            Order::Name => kernels.sort_by(|one, other| one.name.cmp(&other.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_analyzer::KernelRates;
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
        let sorted = |order: Order| {
            let mut kernels: Vec<&KernelFigures> = all.iter().collect();
            order.sort(&mut kernels);
            kernels.iter().map(|kernel| kernel.name.as_str()).collect::<String>()
        };
        assert_eq!(Order::ALL.map(sorted), ["bca", "cab", "bac", "acb", "acb", "abc"].map(String::from));
        let round = Order::ALL.iter().fold(Order::default(), |order, _| order.next());
        assert_eq!(round, Order::default());
    }
}
