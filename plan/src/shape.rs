//! What a model is: the sizes that everything else follows from.

use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{error::PlanError, latent::Latent, tensors::Tensor};

/// More parameters than this are a typing error.
const MOST_PARAMETERS: u128 = 10_u128.pow(16);

/// The sizes of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelShape {
    /// What people call it.
    pub name: String,
    /// Decoder layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// What latent attention makes queries, keys and values of, if attention is latent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent: Option<Latent>,
    /// Width inside the feed-forward network; of one expert, where there are experts.
    pub ffn: u64,
    /// What kind of feed-forward network.
    pub feed_forward: FeedForward,
    /// Tokens there are.
    pub vocabulary: u64,
    /// Whether the output projection is the embedding.
    pub tied_embeddings: bool,
    /// What normalizes.
    pub norm: Norm,
    /// Which projections have biases.
    pub biases: Biases,
    /// Whether queries and keys are normalized by head.
    pub qk_norm: bool,
    /// Positions that are learned, if positions are.
    pub learned_positions: Option<u64>,
    /// Experts, if the feed-forward networks are mixtures.
    pub experts: Option<Experts>,
}

/// The fields again, to be read before they are checked.
#[derive(Deserialize)]
#[serde(remote = "ModelShape")]
struct Fields {
    name: String,
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    latent: Option<Latent>,
    ffn: u64,
    feed_forward: FeedForward,
    vocabulary: u64,
    tied_embeddings: bool,
    norm: Norm,
    biases: Biases,
    qk_norm: bool,
    learned_positions: Option<u64>,
    experts: Option<Experts>,
}

impl<'de> Deserialize<'de> for ModelShape {
    /// Reads what was written, and checks it: a shape from a file is as good as any.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModelShape, D::Error> {
        Fields::deserialize(deserializer)?.check().map_err(D::Error::custom)
    }
}

/// A feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedForward {
    /// Up, gate and down: three matrices.
    Gated,
    /// Up and down: two matrices.
    Plain,
}

impl FeedForward {
    /// How many matrices of hidden × ffn it has.
    pub fn matrices(self) -> u64 {
        match self {
            FeedForward::Gated => 3,
            FeedForward::Plain => 2,
        }
    }
}

/// A normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// A scale.
    Rms,
    /// A scale and a shift.
    Layer,
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The output of attention.
    pub output: bool,
    /// The feed-forward network.
    pub ffn: bool,
}

impl Biases {
    /// On everything.
    pub const ALL: Biases = Biases { qkv: true, output: true, ffn: true };
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experts {
    /// How many there are in a layer to choose from.
    pub count: u64,
    /// How many of them a token goes through.
    pub top_k: u64,
    /// Experts beside these that every token goes through.
    #[serde(default)]
    pub shared: u64,
    /// Layers before those with experts.
    #[serde(default)]
    pub dense_layers: u64,
    /// Width of the network in these.
    #[serde(default)]
    pub dense_ffn: u64,
    /// Whether the router adds a bias to each expert's score.
    #[serde(default)]
    pub router_bias: bool,
}

impl ModelShape {
    /// Width of all query heads together.
    pub fn query_width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Width of all key heads together, which is that of the values too unless attention is latent.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Says what cannot be. Every shape this crate hands out has passed.
    pub fn check(self) -> Result<ModelShape, PlanError> {
        let experts = self.experts.unwrap_or(Experts { count: 1, top_k: 1, ..Experts::default() });
        let bounds = [
            ("layers", self.layers, 1 << 14),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 16),
            ("kv_heads", self.kv_heads, 1 << 16),
            ("head_dim", self.head_dim, 1 << 16),
            ("ffn", self.ffn, 1 << 22),
            ("vocabulary", self.vocabulary, 1 << 28),
            ("learned_positions", self.learned_positions.unwrap_or(1), 1 << 28),
            ("experts", experts.count, 1 << 16),
            ("top_k", experts.top_k, 1 << 16),
        ];
        for (what, value, most) in bounds {
            if value == 0 {
                return Err(PlanError::Shape(format!("{what} is 0")));
            }
            if value > most {
                return Err(PlanError::Shape(format!("{what} is {value}; the maximum is {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv_heads) = (self.heads, self.kv_heads);
            return Err(PlanError::Shape(format!("{heads} heads are not divisible by {kv_heads} kv_heads")));
        }
        experts.check(self.layers)?;
        self.latent.map_or(Ok(()), |latent| latent.check(&self))?;
        // A layer has at most 2^20·2^22·3·2^17 parameters, so this cannot overflow.
        let of = |tensor: &Tensor| u128::from(tensor.copies) * u128::from(tensor.rows) * u128::from(tensor.columns);
        let parameters: u128 = self.tensors().iter().map(of).sum();
        if parameters > MOST_PARAMETERS {
            return Err(PlanError::Shape(format!("{parameters} parameters; the maximum is {MOST_PARAMETERS}")));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_shape_is_read_as_it_was_written() {
        for name in ModelShape::presets() {
            let model = ModelShape::preset(name).unwrap();
            let mut written = serde_json::to_value(&model).unwrap();
            assert_eq!(serde_json::from_value::<ModelShape>(written.clone()).unwrap(), model);
            // Of a later version, which knows more.
            written["colour"] = json!("blue");
            written["biases"]["head"] = json!(false);
            assert_eq!(serde_json::from_value::<ModelShape>(written).unwrap(), model);
        }
    }

    #[test]
    fn what_cannot_be_is_not_read() {
        let with = |key: &str, value: Value| {
            let mut written = serde_json::to_value(ModelShape::preset("mixtral-8x7b").unwrap()).unwrap();
            written[key] = value;
            serde_json::from_value::<ModelShape>(written).unwrap_err().to_string()
        };
        assert_eq!(with("heads", json!(0)), "invalid model: heads is 0");
        assert_eq!(
            with("layers", json!(u64::MAX)),
            format!("invalid model: layers is {}; the maximum is 16384", u64::MAX)
        );
        assert!(with("experts", json!({ "count": 2, "top_k": 3 })).contains("top_k 3 is impossible with 2 experts"));
        assert!(with("hidden", json!(-1)).contains("expected u64"));
        assert!(with("norm", json!("batch")).contains("unknown variant"));
    }
}
