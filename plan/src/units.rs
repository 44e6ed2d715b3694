//! Units: the parameters that replicas gather, reduce and free together.
//!
//! The embedding and the head are units, and so are layers that follow each other: as many as the layout says, fewer where a chunk
//! ends or layers with experts begin. The experts of a layer are one unit each: they are large already.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    error::PlanError,
    layout::{ParallelLayout, Zero},
    shape::ModelShape,
    tensors::{Part, Tensor},
};

/// Layers of a chunk that are alike: all of them have experts, or none has.
#[derive(Clone, Debug)]
pub(crate) struct AlikeLayers {
    layers: Range<u64>,
    have_experts: bool,
    /// Layers of a unit, but for the last.
    unit_layers: u64,
}

/// Units that are alike, those of layers by how many they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnitKind {
    Embedding,
    /// Layers without experts.
    Dense(u64),
    /// Layers with experts, without these.
    Sparse(u64),
    /// The experts of a layer.
    Experts,
    Head,
    /// A copy of the embedding for the head.
    TiedEmbedding,
}

impl ParallelLayout {
    /// The layers of a chunk, in order.
    pub(crate) fn alike_layers(&self, model: &ModelShape, stage: u64, chunk: u64) -> [AlikeLayers; 2] {
        let Range { start, end } = self.chunk_layers(model, stage, chunk);
        let border = start + model.layers_of(start..end).dense;
        let alike = |layers, have_experts| AlikeLayers { layers, have_experts, unit_layers: self.unit_layers };
        [alike(start..border, false), alike(border..end, true)]
    }

    /// Says why units cannot have so many layers.
    pub(crate) fn check_units(&self, model: &ModelShape) -> Result<(), PlanError> {
        let wrong = |why: String| Err(PlanError::Layout(why));
        let unit = self.unit_layers;
        if unit > 1 && self.replicas() == 1 {
            return wrong(format!("units of {unit} layers need at least 2 replicas"));
        }
        // Pieces differ by one layer at most.
        let most = model.layers.div_ceil(self.schedule.pieces(self.pp, self.chunks));
        if unit > most {
            return wrong(format!("units of {unit} layers are more than the {most} of a stage or chunk"));
        }
        Ok(())
    }
}

impl AlikeLayers {
    fn count(&self) -> u64 {
        (self.layers.end - self.layers.start).div_ceil(self.unit_layers)
    }

    /// The layers of each unit.
    pub(crate) fn units(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + use<> {
        self.ends(u64::MAX)
    }

    /// Those of the first and of the last units, so many of each.
    pub(crate) fn ends(&self, most: u64) -> impl DoubleEndedIterator<Item = Range<u64>> + use<> {
        let AlikeLayers { layers: Range { start, end }, unit_layers, .. } = *self;
        let count = self.count();
        let first = most.min(count);
        let last = count.saturating_sub(most).max(first);
        (0..first).chain(last..count).map(move |unit| {
            let from = start + unit * unit_layers;
            from..(from + unit_layers).min(end)
        })
    }

    /// How many units are between these ends.
    pub(crate) fn middle(&self, most: u64) -> u64 {
        self.count().saturating_sub(most.saturating_mul(2))
    }

    /// What the unit is that begins with a layer, if it is one of these.
    pub(crate) fn kind(&self, first: u64) -> Option<UnitKind> {
        let layers = self.layers.contains(&first).then(|| self.unit_layers.min(self.layers.end - first))?;
        Some(if self.have_experts { UnitKind::Sparse(layers) } else { UnitKind::Dense(layers) })
    }

    /// How many units of each kind there are between ends of so many.
    pub(crate) fn kinds_between(&self, most: u64) -> impl Iterator<Item = (UnitKind, u64)> + use<> {
        let middle = self.middle(most);
        let experts = self.have_experts.then_some((UnitKind::Experts, middle * self.unit_layers));
        self.kind(self.layers.start).map(|kind| (kind, middle)).into_iter().chain(experts)
    }

    /// How many units of each kind there are.
    fn kinds(&self) -> impl Iterator<Item = (UnitKind, u64)> + use<> {
        let last = self.ends(1).next_back().and_then(|last| self.kind(last.start));
        let others = self.kind(self.layers.start).map(|kind| (kind, self.count() - 1));
        let experts = self.have_experts.then_some((UnitKind::Experts, self.layers.end - self.layers.start));
        last.map(|kind| (kind, 1)).into_iter().chain(others).chain(experts)
    }
}

/// How many parameters the fullest tensor rank holds of each part of a model.
pub(crate) struct Holdings {
    embedding: u64,
    /// A layer that has no experts.
    dense: u64,
    /// A layer that has, without them.
    sparse: u64,
    /// The experts of a layer that are on this rank.
    experts: u64,
    head: u64,
    tied: bool,
}

/// Units of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitSize {
    parameters: u64,
    /// How many such there are.
    pub(crate) count: u64,
    /// How many replicas hold them, or shards of them.
    pub(crate) replicas: u64,
}

impl UnitSize {
    /// Parameters of one unit that a replica holds, sharded by ZeRO.
    pub(crate) fn shard(&self) -> u64 {
        self.parameters.div_ceil(self.replicas)
    }

    /// Parameters of one unit; with ZeRO, each is padded until all replicas have equal shards of it.
    pub(crate) fn padded(&self, zero: Zero) -> u64 {
        match zero {
            Zero::Off => self.parameters,
            _ => self.replicas * self.shard(),
        }
    }
}

impl Holdings {
    pub(crate) fn of(model: &ModelShape, layout: &ParallelLayout) -> Holdings {
        let (first, last) = model.kinds_of_layers();
        let ends = ModelShape { layers: 0, ..model.clone() }.tensors();
        let of = |tensors: &[Tensor], part: Part| -> u64 {
            let of_part = tensors.iter().filter(|tensor| tensor.part == part);
            of_part.map(|tensor| tensor.parameters_of_a_rank(layout.tp)).sum()
        };
        Holdings {
            embedding: of(&ends, Part::Embedding),
            dense: of(&model.layer_tensors(first), Part::Layer(first)),
            sparse: of(&model.layer_tensors(last), Part::Layer(last)),
            experts: of(&model.layer_tensors(last), Part::Experts(last)) / layout.ep,
            head: of(&ends, Part::Head),
            tied: model.tied_embeddings,
        }
    }

    /// The units of a stage. A tied embedding is on the first stage and again on the last, in a unit of the same size.
    pub(crate) fn units(
        &self,
        model: &ModelShape,
        layout: &ParallelLayout,
        stage: u64,
    ) -> BTreeMap<UnitKind, UnitSize> {
        let (first, last) = (layout.has_embedding(stage), layout.has_head(stage));
        let ends = [
            (UnitKind::Embedding, first),
            (UnitKind::Head, last),
            (UnitKind::TiedEmbedding, last && !first && self.tied),
        ];
        let ends = ends.into_iter().filter(|(_, is_here)| *is_here).map(|(kind, _)| (kind, 1));
        let layers = (0..layout.chunks).flat_map(|chunk| layout.alike_layers(model, stage, chunk));
        let mut units = BTreeMap::new();
        for (kind, count) in ends.chain(layers.flat_map(|alike| alike.kinds())).filter(|(_, count)| *count > 0) {
            units.entry(kind).or_insert_with(|| self.unit(layout, kind)).count += count;
        }
        units
    }

    /// A unit of a kind, of which none has been counted.
    fn unit(&self, layout: &ParallelLayout, kind: UnitKind) -> UnitSize {
        let replicas = match kind {
            UnitKind::Experts => layout.expert_replicas(),
            _ => layout.shards(),
        };
        let parameters = match kind {
            UnitKind::Embedding | UnitKind::TiedEmbedding => self.embedding,
            UnitKind::Dense(layers) => layers * self.dense,
            UnitKind::Sparse(layers) => layers * self.sparse,
            UnitKind::Experts => self.experts,
            UnitKind::Head => self.head,
        };
        UnitSize { parameters, count: 0, replicas }
    }
}
