//! A model of which only sums are known, and models as far as anything is known of them.
//!
//! FLOPs follow from how many parameters multiply every token, and from how many layers attend over how wide a stream. So
//! a program whose configuration nobody can read still has them, by the modules that it is made of.

use serde::{Deserialize, Serialize};

use crate::{flops::Convention, shape::ModelShape};

/// No sum is larger.
const MOST: u64 = 10_u64.pow(16);

/// What the modules of a model add up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedModel {
    /// What its class is called.
    pub name: String,
    /// How many layers attend.
    pub layers: u64,
    /// Width of the residual stream; a part of a model that embeds nothing does not show it.
    pub width: Option<u64>,
    /// Tokens there are, with the same reservation.
    pub vocabulary: Option<u64>,
    /// Parameters of all kinds.
    pub parameters: u64,
    /// Those of embeddings.
    pub embeddings: u64,
    /// Those of matrices that every token goes through.
    pub matrices: u64,
    /// The most rows or columns of a matrix: the output has as many as there are tokens. Where none has, the output is the
    /// embedding.
    pub longest_side: u64,
}

impl CountedModel {
    /// The model, if its sums are possible.
    pub fn check(self) -> Option<CountedModel> {
        let sums = [self.parameters, self.embeddings, self.matrices];
        let is_possible = sums.iter().all(|sum| *sum <= MOST)
            && self.embeddings <= self.parameters
            && (1..=1 << 14).contains(&self.layers)
            && self.width.is_none_or(|width| (1..=1 << 20).contains(&width))
            && self.vocabulary.is_none_or(|vocabulary| (1..=1 << 28).contains(&vocabulary));
        is_possible.then_some(self)
    }

    /// A model that was counted in parts: the stages of a pipeline.
    pub fn of_parts(parts: impl IntoIterator<Item = CountedModel>) -> Option<CountedModel> {
        let add = |one: CountedModel, other: CountedModel| CountedModel {
            name: one.name,
            layers: one.layers + other.layers,
            width: one.width.max(other.width),
            parameters: one.parameters + other.parameters,
            embeddings: one.embeddings + other.embeddings,
            matrices: one.matrices + other.matrices,
            vocabulary: one.vocabulary.max(other.vocabulary),
            longest_side: one.longest_side.max(other.longest_side),
        };
        parts.into_iter().reduce(add)
    }

    /// FLOPs of training on one token, without what is computed twice.
    fn flops_per_token(&self, convention: Convention, sequence_length: u64) -> Option<f64> {
        let attention = 12.0 * self.layers as f64 * sequence_length as f64 * self.width? as f64;
        let vocabulary = self.vocabulary?;
        let tied = if self.longest_side < vocabulary { vocabulary * self.width? } else { 0 };
        let matrices = 6.0 * (self.matrices + tied) as f64;
        Some(match convention {
            Convention::Model => matrices + attention,
            Convention::Causal | Convention::Megatron => matrices + attention / 2.0,
            Convention::SixN => 6.0 * self.parameters as f64,
            Convention::Torchtitan => 6.0 * (self.parameters - self.embeddings) as f64 + attention,
        })
    }
}

/// A model, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Model {
    /// All its sizes.
    Shape(ModelShape),
    /// What it adds up to.
    Counted(CountedModel),
}

impl Model {
    /// What people call it.
    pub fn name(&self) -> &str {
        match self {
            Model::Shape(shape) => &shape.name,
            Model::Counted(counted) => &counted.name,
        }
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> u64 {
        match self {
            Model::Shape(shape) => shape.parameters(),
            Model::Counted(counted) => counted.parameters,
        }
    }

    /// All its sizes, if they are known.
    pub fn shape(&self) -> Option<&ModelShape> {
        match self {
            Model::Shape(shape) => Some(shape),
            Model::Counted(_) => None,
        }
    }

    /// FLOPs of training on one token, without what is computed twice.
    pub fn flops_per_token(&self, convention: Convention, sequence_length: u64) -> Option<f64> {
        match self {
            Model::Shape(shape) => Some(shape.flops_per_token(convention, sequence_length)),
            Model::Counted(counted) => counted.flops_per_token(convention, sequence_length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the modules of a model with a shape add up to.
    fn counted(shape: &ModelShape) -> CountedModel {
        let multiply = |tensor: &crate::tensors::Tensor| if tensor.multiplies { tensor.parameters() } else { 0 };
        CountedModel {
            name: shape.name.clone(),
            layers: shape.layers,
            width: Some(shape.hidden),
            parameters: shape.parameters(),
            embeddings: shape.vocabulary * shape.hidden,
            matrices: shape.layers * shape.layer_tensors(0).iter().map(multiply).sum::<u64>()
                + if shape.tied_embeddings { 0 } else { shape.vocabulary * shape.hidden },
            vocabulary: Some(shape.vocabulary),
            longest_side: if shape.tied_embeddings { shape.ffn } else { shape.vocabulary },
        }
    }

    #[test]
    fn sums_have_the_flops_of_the_shape_they_are_of() {
        for name in ["tiny", "llama-1b", "llama-8b", "qwen3-8b"] {
            let shape = ModelShape::preset(name).unwrap();
            let counted = counted(&shape).check().unwrap();
            for convention in Convention::ALL {
                let of = |model: Model| model.flops_per_token(convention, 2048).unwrap();
                let (one, other) = (of(Model::Counted(counted.clone())), of(Model::Shape(shape.clone())));
                assert!((one / other - 1.0).abs() < 1e-9, "{name} {convention:?}: {one} {other}");
            }
        }
    }

    #[test]
    fn stages_add_up_and_nonsense_is_refused() {
        let part = |layers, width, parameters, embeddings| CountedModel {
            name: "part".into(),
            layers,
            width,
            parameters,
            embeddings,
            matrices: parameters - embeddings,
            vocabulary: width.map(|_| 5),
            longest_side: 5,
        };
        let whole = CountedModel::of_parts([part(2, Some(8), 100, 40), part(3, None, 90, 0)]).unwrap();
        assert_eq!((whole.layers, whole.width, whole.parameters, whole.matrices), (5, Some(8), 190, 150));
        assert_eq!(part(3, None, 90, 0).flops_per_token(Convention::Model, 10), None);
        assert_eq!(part(0, None, 90, 0).check(), None);
        assert_eq!(CountedModel { embeddings: 91, ..part(1, None, 90, 0) }.check(), None);
    }
}
