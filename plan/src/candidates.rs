//! The layouts that are tried: all that people use, or only those with values that are asked for.
//!
//! Tensor shards stay inside a node; stages go across nodes; sequences are cut into parts only if they are long; experts are spread over
//! any number of replicas and parts of sequences. What replicas share by ZeRO, all of them share, or those of a node (hybrid sharding). A value that
//! is asked for is tried whatever people use.

use serde::Serialize;

use crate::{
    error::PlanError,
    instead::said,
    layout::{ParallelLayout, Recompute, Zero},
    schedule::Schedule,
    search::Request,
};

/// Sequences are not cut into parts of fewer tokens.
const SHORTEST_PART: u64 = 8192;

/// What layouts must have to be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// Replicas.
    pub dp: Option<u64>,
    /// Tensor ranks.
    pub tp: Option<u64>,
    /// Whether these share tokens between matrices.
    pub sequence_parallel: Option<bool>,
    /// Ranks that share sequences.
    pub cp: Option<u64>,
    /// Replicas, or parts of sequences, that share experts.
    pub ep: Option<u64>,
    /// Stages.
    pub pp: Option<u64>,
    /// What replicas share.
    pub zero: Option<Zero>,
    /// Groups of replicas that share it.
    pub dp_replicate: Option<u64>,
    /// Layers of a unit. Without one, each is a unit.
    pub unit_layers: Option<u64>,
    /// The pipeline schedule, of layouts with stages. Without one, those are tried that most frameworks have.
    pub schedule: Option<Schedule>,
    /// Chunks of layers on a stage.
    pub chunks: Option<u64>,
    /// Sequences of a micro-batch.
    pub micro_batch: Option<u64>,
    /// What is computed again.
    pub recompute: Option<Recompute>,
}

/// One of the values that can be asked for.
struct Asked {
    option: &'static str,
    value: Option<String>,
    /// The rest of what is asked for.
    without: Wanted,
    of_layout: fn(&ParallelLayout) -> String,
}

impl Wanted {
    /// All that is asked for, as options: `--tp 8 --pp 16`.
    pub fn options(&self) -> String {
        let options = self.asked().into_iter().filter_map(|asked| Some(format!("--{} {}", asked.option, asked.value?)));
        options.collect::<Vec<_>>().join(" ")
    }

    fn asked(&self) -> [Asked; 13] {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let asked = |option, value, without, of_layout| Asked { option, value, without, of_layout };
        [
            asked("dp", number(self.dp), Wanted { dp: None, ..*self }, |layout| layout.dp.to_string()),
            asked("tp", number(self.tp), Wanted { tp: None, ..*self }, |layout| layout.tp.to_string()),
            asked(
                "sequence-parallel",
                self.sequence_parallel.map(|value| value.to_string()),
                Wanted { sequence_parallel: None, ..*self },
                |layout| layout.sequence_parallel.to_string(),
            ),
            asked("cp", number(self.cp), Wanted { cp: None, ..*self }, |layout| layout.cp.to_string()),
            asked("ep", number(self.ep), Wanted { ep: None, ..*self }, |layout| layout.ep.to_string()),
            asked("pp", number(self.pp), Wanted { pp: None, ..*self }, |layout| layout.pp.to_string()),
            asked("zero", self.zero.map(zero), Wanted { zero: None, ..*self }, |layout| zero(layout.zero)),
            asked("dp-replicate", number(self.dp_replicate), Wanted { dp_replicate: None, ..*self }, |layout| {
                layout.dp_replicate.to_string()
            }),
            asked("unit-layers", number(self.unit_layers), Wanted { unit_layers: None, ..*self }, |layout| {
                layout.unit_layers.to_string()
            }),
            asked(
                "schedule",
                self.schedule.map(|schedule| schedule.name().into()),
                Wanted { schedule: None, ..*self },
                |layout| layout.schedule.name().into(),
            ),
            asked("chunks", number(self.chunks), Wanted { chunks: None, ..*self }, |layout| layout.chunks.to_string()),
            asked("micro-batch", number(self.micro_batch), Wanted { micro_batch: None, ..*self }, |layout| {
                layout.micro_batch.to_string()
            }),
            asked(
                "recompute",
                self.recompute.map(|recompute| recompute.name().into()),
                Wanted { recompute: None, ..*self },
                |layout| layout.recompute.name().into(),
            ),
        ]
    }

    /// A layout with all of it: what cannot be is wrong with that.
    fn of(&self, grid: ParallelLayout, sequences: u64) -> ParallelLayout {
        let schedule = match (self.schedule, self.chunks) {
            (Some(schedule), _) if grid.pp > 1 => schedule,
            (None, Some(2..)) => Schedule::Interleaved,
            _ => grid.schedule,
        };
        let shares = if self.dp_replicate > Some(1) { Zero::One } else { grid.zero };
        let micro_batch = self.micro_batch.unwrap_or(1).max(1);
        ParallelLayout {
            sequence_parallel: self.sequence_parallel.unwrap_or(false),
            zero: self.zero.unwrap_or(shares),
            dp_replicate: self.dp_replicate.unwrap_or(1),
            schedule,
            chunks: self.chunks.unwrap_or_else(|| schedule.fewest_chunks()),
            micro_batch,
            micro_batches: sequences / micro_batch,
            ..grid
        }
    }
}

fn zero(zero: Zero) -> String {
    u8::from(zero).to_string()
}

impl Request {
    /// The grids of ranks.
    pub(crate) fn grids(&self) -> Vec<ParallelLayout> {
        let (gpus, wanted) = (self.gpus, self.wanted);
        let mut grids = Vec::new();
        for tp in or_usual(wanted.tp, divisors(self.assumptions.gpus_per_node.min(gpus)), gpus) {
            let stages = divisors(gpus / tp).filter(|pp| *pp <= self.model.layers);
            for pp in or_usual(wanted.pp, stages, gpus / tp) {
                let replicas = gpus / tp / pp;
                for cp in or_usual(wanted.cp, self.parts_of_sequences(), replicas) {
                    let dp = replicas / cp;
                    let unit_layers = wanted.unit_layers.unwrap_or(self.base().unit_layers);
                    let with = |ep| ParallelLayout { dp, tp, cp, ep, pp, unit_layers, ..self.base() };
                    grids.extend(or_usual(wanted.ep, self.expert_ranks(dp * cp), dp * cp).into_iter().map(with));
                }
            }
        }
        grids.retain(|grid| wanted.dp.is_none_or(|dp| dp == grid.dp));
        grids
    }

    /// In how many parts sequences may be cut.
    fn parts_of_sequences(&self) -> impl Iterator<Item = u64> {
        let length = self.sequence_length;
        let worth_it = move |cp: &u64| *cp == 1 || length / cp >= SHORTEST_PART && length.is_multiple_of(2 * cp);
        (0..20).map(|power| 1 << power).filter(worth_it)
    }

    /// Among how many of so many replicas and parts of sequences experts may be spread.
    fn expert_ranks(&self, replicas: u64) -> impl Iterator<Item = u64> + use<> {
        let experts = self.model.experts.map_or(1, |experts| experts.count);
        divisors(experts).take_while(move |ep| *ep <= replicas)
    }

    /// What the replicas of a grid may share, and in how many groups: all of them, or those of each node.
    pub(crate) fn sharings(&self, grid: &ParallelLayout) -> Vec<(Zero, u64)> {
        let in_node = self.assumptions.gpus_per_node / grid.tp / grid.cp;
        let is_hybrid = in_node > 1
            && grid.dp > in_node
            && grid.dp.is_multiple_of(in_node)
            && (in_node * grid.cp).is_multiple_of(grid.ep);
        let nodes = is_hybrid.then(|| grid.dp / in_node);
        let stages = if grid.replicas() > 1 { &Zero::ALL[..] } else { &Zero::ALL[..1] };
        let groups = |zero: &Zero| -> Vec<u64> {
            match self.wanted.dp_replicate {
                _ if *zero == Zero::Off => vec![1],
                Some(groups) => vec![groups],
                None => [1].into_iter().chain(nodes).collect(),
            }
        };
        let sharings = stages.iter().flat_map(|zero| groups(zero).into_iter().map(move |groups| (*zero, groups)));
        let is_wanted = |(zero, groups): &(Zero, u64)| {
            let Wanted { zero: wanted, dp_replicate, .. } = self.wanted;
            wanted.is_none_or(|wanted| wanted == *zero) && dp_replicate.is_none_or(|wanted| wanted == *groups)
        };
        sharings.filter(is_wanted).collect()
    }

    /// What may be computed again.
    pub(crate) fn recomputations(&self) -> impl Iterator<Item = Recompute> + use<> {
        let wanted = self.wanted.recompute;
        Recompute::ALL.into_iter().filter(move |recompute| wanted.is_none_or(|wanted| wanted == *recompute))
    }

    /// The micro-batches and schedules of a layout with so many sequences for each replica.
    pub(crate) fn layouts(&self, layout: ParallelLayout, sequences: u64) -> impl Iterator<Item = ParallelLayout> {
        let Wanted { sequence_parallel, micro_batch, .. } = self.wanted;
        let powers = (0..40).map(|power| 1 << power).take_while(move |size| *size <= sequences);
        let layouts = or_usual(micro_batch, powers, sequences).into_iter().flat_map(move |micro_batch| {
            self.schedules(ParallelLayout { micro_batch, micro_batches: sequences / micro_batch, ..layout })
        });
        layouts.flat_map(move |layout| {
            let shared =
                [false, true].into_iter().filter(move |shared| sequence_parallel.is_none_or(|it| it == *shared));
            shared.map(move |sequence_parallel| ParallelLayout { sequence_parallel, ..layout })
        })
    }

    /// The schedules a layout can have: 1F1B, zero-bubble, and interleaved with every number of chunks. GPipe has the same bubble
    /// as 1F1B and needs more memory; few frameworks have those that go both ways. These are tried only if asked for.
    fn schedules(&self, layout: ParallelLayout) -> impl Iterator<Item = ParallelLayout> + use<> {
        let (layers, pp, asked_chunks) = (self.model.layers, layout.pp, self.wanted.chunks);
        let wanted = self.wanted.schedule.filter(|_| pp > 1);
        let plain = ParallelLayout { schedule: Schedule::OneForwardOneBackward, chunks: 1, ..layout };
        let most_chunks = if pp > 1 { layers / pp } else { 1 };
        // Pieces that are not alike keep each other waiting, but for the two at the ends.
        let are_alike = move |chunks: &u64| {
            asked_chunks.is_some() || [0, pp * chunks - 1, pp * chunks - 2].contains(&(layers % (pp * chunks)))
        };
        let interleaved = (2..=most_chunks.min(asked_chunks.unwrap_or(8))).filter(are_alike);
        let interleaved =
            interleaved.map(move |chunks| ParallelLayout { schedule: Schedule::Interleaved, chunks, ..layout });
        let possible = move |layout: &ParallelLayout| {
            layout.schedule != Schedule::Interleaved || layout.micro_batches.is_multiple_of(layout.pp)
        };
        let filled = (pp > 1).then_some(ParallelLayout { schedule: Schedule::ZeroBubble, ..plain });
        let others = wanted.filter(|wanted| *wanted == Schedule::Gpipe || wanted.is_dual());
        let others = others.map(|schedule| ParallelLayout { schedule, chunks: schedule.fewest_chunks(), ..layout });
        let is_wanted = move |layout: &ParallelLayout| {
            wanted.is_none_or(|wanted| wanted == layout.schedule)
                && asked_chunks.is_none_or(|chunks| chunks == layout.chunks)
        };
        let usual = [plain].into_iter().chain(filled).chain(interleaved);
        usual.chain(others).filter(is_wanted).filter(possible)
    }

    /// Why nothing is tried on a grid that is possible in itself, with so many sequences for each replica.
    pub(crate) fn why_nothing(&self, grid: ParallelLayout, sequences: u64) -> String {
        let layout = self.wanted.of(grid, sequences);
        match (layout.check(&self.model), layout.zero) {
            (Err(PlanError::Layout(why)), _) => why,
            (_, zero) if zero > Zero::Off && grid.replicas() == 1 => "ZeRO needs at least 2 replicas".into(),
            _ if !sequences.is_multiple_of(layout.micro_batch) => {
                let size = layout.micro_batch;
                format!("{sequences} sequences of a replica are not divisible by micro-batch {size}")
            }
            _ => PlanError::TooLarge("its memory").to_string(),
        }
    }

    /// The first of the options that are asked for without which there would be layouts, and what these have in its place.
    pub(crate) fn instead(&self, layouts: impl Fn(&Request) -> Vec<ParallelLayout>) -> Option<String> {
        self.wanted.asked().into_iter().filter(|asked| asked.value.is_some()).find_map(|asked| {
            let found = layouts(&Request { wanted: asked.without, ..self.clone() });
            let mut values: Vec<String> = found.iter().map(asked.of_layout).collect();
            values.sort_by_key(|value| (value.len(), value.clone()));
            values.dedup();
            said(asked.option, &values)
        })
    }
}

/// The value that is asked for, or the usual ones, of those that divide a number.
fn or_usual(wanted: Option<u64>, usual: impl Iterator<Item = u64>, whole: u64) -> Vec<u64> {
    let values = wanted.map_or_else(|| usual.collect(), |wanted| vec![wanted]);
    values.into_iter().filter(|value| whole.is_multiple_of(*value)).collect()
}

fn divisors(number: u64) -> impl Iterator<Item = u64> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlanError, search::tests::request};

    fn search(model: &str, gpus: u64, wanted: Wanted) -> Result<Vec<ParallelLayout>, PlanError> {
        let request = Request { wanted, ..request(model, "h100", gpus) };
        let found = request.search()?.configurations.into_iter().map(|found| found.layout).collect::<Vec<_>>();
        assert!(found.iter().all(|layout| layout.check(&request.model).is_ok()));
        Ok(found)
    }

    #[test]
    fn only_what_is_asked_for_is_tried() {
        let none = Wanted::default();
        let all = search("llama-8b", 64, none).unwrap();
        let three = Wanted { dp: Some(8), tp: Some(2), sequence_parallel: Some(true), ..none };
        for asked in three.asked() {
            assert_eq!(asked.without.options().matches("--").count(), if asked.value.is_some() { 2 } else { 3 });
        }
        for wanted in [
            Wanted { dp: Some(8), ..none },
            Wanted { tp: Some(2), sequence_parallel: Some(false), ..none },
            Wanted { tp: Some(4), sequence_parallel: Some(true), ..none },
            Wanted { pp: Some(4), schedule: Some(Schedule::Interleaved), chunks: Some(4), ..none },
            Wanted { zero: Some(Zero::Three), recompute: Some(Recompute::Full), ..none },
            Wanted { micro_batch: Some(2), ..none },
            Wanted { dp_replicate: Some(2), ..none },
            Wanted { unit_layers: Some(5), ..none },
        ] {
            let found = search("llama-8b", 64, wanted).unwrap();
            assert!(!found.is_empty() && found.len() < all.len(), "{wanted:?}");
            for asked in wanted.asked() {
                let values = found.iter().map(asked.of_layout);
                assert!(values.into_iter().all(|value| asked.value.as_ref().is_none_or(|asked| *asked == value)));
            }
        }
        let experts = search("mixtral-8x7b", 64, Wanted { ep: Some(8), ..none }).unwrap();
        assert!(!experts.is_empty() && experts.iter().all(|layout| layout.ep == 8));
    }

    /// Tensor ranks of two nodes, short sequences in parts, three sequences at a time, groups of four replicas, five uneven chunks,
    /// experts on parts of sequences, and in groups of replicas.
    #[test]
    fn what_is_asked_for_is_tried_whatever_people_use() {
        let none = Wanted::default();
        for (model, gpus, wanted) in [
            ("llama-405b", 256, Wanted { tp: Some(16), ..none }),
            ("llama-8b", 16, Wanted { cp: Some(4), ..none }),
            ("llama-8b", 16, Wanted { dp_replicate: Some(4), dp: Some(16), ..none }),
            ("llama-8b", 16, Wanted { pp: Some(4), chunks: Some(5), ..none }),
            ("mixtral-8x7b", 64, Wanted { dp: Some(1), cp: Some(8), ep: Some(8), ..none }),
            ("mixtral-8x7b", 64, Wanted { ep: Some(4), dp_replicate: Some(2), ..none }),
        ] {
            let request = request(model, "h100", gpus);
            let model = crate::ModelShape { kv_heads: request.model.heads, ..request.model.clone() };
            let found = Request { wanted, model, ..request }.search().unwrap().configurations;
            assert!(!found.is_empty(), "{wanted:?}");
        }
        let request = request("llama-8b", "h100", 1);
        let wanted = Wanted { micro_batch: Some(3), recompute: Some(Recompute::Full), ..none };
        let model = crate::ModelShape { layers: 4, ..request.model.clone() };
        let found = Request { wanted, model, global_batch_tokens: 6 * 4096, ..request }.search().unwrap();
        assert_eq!(found.configurations[0].layout.micro_batches, 2);
    }

    #[test]
    fn what_no_layout_has_is_an_error_that_says_what_they_have() {
        let none = Wanted::default();
        for (model, gpus, wanted, error, instead) in [
            (
                "llama-8b",
                16,
                Wanted { tp: Some(3), ..none },
                "no layout of 16 GPUs has --tp 3",
                "for example --tp 1, 2, 4 or 8",
            ),
            (
                "llama-8b",
                16,
                Wanted { tp: Some(16), ..none },
                "no layout of 16 GPUs has --tp 16: 8 kv_heads are not divisible by tp 16",
                "for example --tp 1, 2, 4 or 8",
            ),
            (
                "llama-8b",
                16,
                Wanted { ep: Some(2), ..none },
                "no layout of 16 GPUs has --ep 2: ep 2 needs a model with experts",
                "for example --ep 1",
            ),
            (
                "llama-8b",
                8,
                Wanted { tp: Some(4), pp: Some(2), zero: Some(Zero::One), ..none },
                "no layout of 8 GPUs has --tp 4 --pp 2 --zero 1: ZeRO needs at least 2 replicas",
                "for example --tp 1 or 2",
            ),
            (
                "llama-8b",
                8,
                Wanted { pp: Some(8), micro_batch: Some(3), ..none },
                "no layout of 8 GPUs has --pp 8 --micro-batch 3: 1024 sequences of a replica are not divisible by \
                 micro-batch 3",
                "for example --micro-batch 2",
            ),
        ] {
            let found = search(model, gpus, wanted).unwrap_err();
            assert_eq!(found.to_string(), error);
            let PlanError::NoLayout { instead: Some(found), .. } = found else { panic!("{found:?}") };
            assert_eq!(found, instead);
        }
    }

    /// With 100 Gb/s for each GPU, replicas of a node share, and nodes hold the same.
    #[test]
    fn replicas_of_a_node_share_where_the_network_is_slow() {
        let fast = Request { gradients: crate::Precision::Fp32, ..request("llama-8b", "h100", 256) };
        let assumptions = crate::Assumptions { network_bandwidth: 12.5e9, ..fast.assumptions };
        let best = |request: &Request| request.search().unwrap().configurations[0].clone();
        let slow = Request { assumptions, ..fast.clone() };
        assert_eq!((best(&slow).layout.dp, best(&slow).layout.dp_replicate), (256, 32));
        let without = Request { wanted: Wanted { dp_replicate: Some(1), ..Wanted::default() }, ..slow.clone() };
        assert!(best(&without).step_time_ns > 1.03 * best(&slow).step_time_ns);
        assert_eq!(best(&fast).layout.dp_replicate, 1);
    }

    /// What lacks only memory is told with what it lacks.
    #[test]
    fn a_layout_that_does_not_fit_is_no_error() {
        let found = search("llama-405b", 8, Wanted { tp: Some(8), ..Wanted::default() }).unwrap();
        assert!(found.is_empty());
    }
}
