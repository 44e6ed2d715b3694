//! The tensors of a model, one by one: what a parameter count, a shard and a stage are made of.

use crate::shape::{FeedForward, ModelShape, Norm};

/// One parameter tensor, or all experts' tensors of one name in a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, as in the layer.
    pub name: &'static str,
    /// Where in the model it is.
    pub part: Part,
    /// How many such there are: one, or one for each expert.
    pub copies: u64,
    /// Rows: outputs, of a matrix.
    pub rows: u64,
    /// Columns: inputs, of a matrix; one, of a vector.
    pub columns: u64,
    /// Whether a token is multiplied by it; embeddings are looked up, vectors are added or scale.
    pub multiplies: bool,
    /// Along what tensor parallelism splits it, if it does.
    pub split: Option<Split>,
}

/// Where in the model something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Before the layers.
    Embedding,
    /// A layer, without the experts it has.
    Layer(u64),
    /// The experts of a layer.
    Experts(u64),
    /// After the layers.
    Head,
    /// The last stage's own copy of an embedding that is the output projection too, where that is not the first stage.
    TiedEmbedding,
}

/// Along what tensor parallelism splits a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Outputs: each rank computes some of them.
    Rows,
    /// Inputs: each rank has some of them, and the results are summed.
    Columns,
}

impl Tensor {
    /// How many parameters it has.
    pub fn parameters(&self) -> u64 {
        self.copies * self.rows * self.columns
    }

    /// How many of them the fullest of `tp` ranks has.
    pub fn parameters_of_a_rank(&self, tp: u64) -> u64 {
        match self.split {
            None => self.parameters(),
            Some(Split::Rows) => self.copies * self.rows.div_ceil(tp) * self.columns,
            Some(Split::Columns) => self.copies * self.rows * self.columns.div_ceil(tp),
        }
    }
}

impl ModelShape {
    /// Every tensor, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = vec![matrix("embedding", self.vocabulary, self.hidden, Split::Rows)];
        if let Some(positions) = self.learned_positions {
            tensors.push(Tensor { split: None, ..matrix("positions", positions, self.hidden, Split::Rows) });
        }
        for tensor in &mut tensors {
            tensor.part = Part::Embedding;
            tensor.multiplies = false;
        }
        for layer in 0..self.layers {
            tensors.extend(self.layer_tensors(layer));
        }
        let mut head = self.norm_tensors(["final_norm", "final_norm.bias"], self.hidden);
        if !self.tied_embeddings {
            head.push(matrix("head", self.vocabulary, self.hidden, Split::Rows));
        }
        tensors.extend(head.into_iter().map(|tensor| Tensor { part: Part::Head, ..tensor }));
        tensors
    }

    /// The tensors of one layer, and of its experts.
    pub(crate) fn layer_tensors(&self, layer: u64) -> Vec<Tensor> {
        let hidden = self.hidden;
        let mut tensors = self.norm_tensors(["attention_norm", "attention_norm.bias"], hidden);
        tensors.extend(self.tensors_before_attention());
        tensors.push(matrix("output", hidden, self.attended_width(), Split::Columns));
        if self.biases.output {
            tensors.push(vector("output.bias", hidden));
        }
        tensors.extend(self.norm_tensors(["ffn_norm", "ffn_norm.bias"], hidden));
        let experts = self.layer_experts(layer);
        if let Some(experts) = experts {
            tensors.push(Tensor { split: None, ..matrix("router", experts.count, hidden, Split::Rows) });
            tensors.extend(experts.router_bias.then(|| vector("router.bias", experts.count)));
        }
        if self.dense_width(layer) > 0 {
            tensors.extend(self.network_tensors(self.dense_width(layer)));
        }
        tensors.iter_mut().for_each(|tensor| tensor.part = Part::Layer(layer));
        if let Some(experts) = experts {
            let of_expert = |tensor| Tensor { part: Part::Experts(layer), copies: experts.count, ..tensor };
            tensors.extend(self.network_tensors(self.ffn).into_iter().map(of_expert));
        }
        tensors
    }

    /// What queries, keys and values of one layer are made by.
    pub(crate) fn tensors_before_attention(&self) -> Vec<Tensor> {
        self.latent.map_or_else(|| self.qkv_tensors(), |latent| latent.tensors(self))
    }

    /// The same, where attention is not latent.
    fn qkv_tensors(&self) -> Vec<Tensor> {
        let (query, kv) = (self.query_width(), self.kv_width());
        // Matrices with the same input stand together: whoever lays them out so multiplies by them as by one.
        let matrices = [("q", query), ("k", kv), ("v", kv)];
        let mut tensors = matrices.map(|(name, width)| matrix(name, width, self.hidden, Split::Rows)).to_vec();
        if self.biases.qkv {
            let biases = [("q.bias", query), ("k.bias", kv), ("v.bias", kv)];
            tensors.extend(biases.map(|(name, width)| Tensor { split: Some(Split::Rows), ..vector(name, width) }));
        }
        if self.qk_norm {
            tensors.extend([vector("q_norm", self.head_dim), vector("k_norm", self.head_dim)]);
        }
        tensors
    }

    /// The tensors of a feed-forward network of a width.
    fn network_tensors(&self, width: u64) -> Vec<Tensor> {
        let (inner, biases): (&[&'static str], &[&'static str]) = match self.feed_forward {
            FeedForward::Gated => (&["gate", "up"], &["gate.bias", "up.bias"]),
            FeedForward::Plain => (&["up"], &["up.bias"]),
        };
        let mut tensors: Vec<_> = inner.iter().map(|name| matrix(name, width, self.hidden, Split::Rows)).collect();
        if self.biases.ffn {
            let bias = |name: &&'static str| Tensor { split: Some(Split::Rows), ..vector(name, width) };
            tensors.extend(biases.iter().map(bias));
        }
        tensors.push(matrix("down", self.hidden, width, Split::Columns));
        if self.biases.ffn {
            tensors.push(vector("down.bias", self.hidden));
        }
        tensors
    }

    pub(crate) fn norm_tensors(&self, [scale, shift]: [&'static str; 2], width: u64) -> Vec<Tensor> {
        match self.norm {
            Norm::Rms => vec![vector(scale, width)],
            Norm::Layer => vec![vector(scale, width), vector(shift, width)],
        }
    }

    /// How many parameters the model has.
    pub fn parameters(&self) -> u64 {
        self.tensors().iter().map(Tensor::parameters).sum()
    }

    /// How many of them a token goes through: fewer than all where there are experts.
    pub fn active_parameters(&self) -> u64 {
        let active = |tensor: &Tensor| Tensor { copies: self.active_copies(tensor), ..tensor.clone() }.parameters();
        self.tensors().iter().map(active).sum()
    }

    /// How many tensors like this a token goes through.
    pub(crate) fn active_copies(&self, tensor: &Tensor) -> u64 {
        match (tensor.part, self.experts) {
            (Part::Experts(_), Some(experts)) => experts.top_k,
            _ => tensor.copies,
        }
    }
}

pub(crate) fn matrix(name: &'static str, rows: u64, columns: u64, split: Split) -> Tensor {
    Tensor { name, part: Part::Head, copies: 1, rows, columns, multiplies: true, split: Some(split) }
}

fn vector(name: &'static str, rows: u64) -> Tensor {
    Tensor { name, part: Part::Head, copies: 1, rows, columns: 1, multiplies: false, split: None }
}

#[cfg(test)]
mod tests {
    use crate::ModelShape;

    #[test]
    fn totals_are_the_published_ones() {
        for (name, parameters) in [
            ("gpt2-124m", 124_439_808),
            ("gpt2-1.5b", 1_557_611_200),
            ("llama-1b", 1_235_814_400),
            ("llama-3b", 3_212_749_824),
            ("llama-8b", 8_030_261_248),
            ("llama-70b", 70_553_706_496),
            ("llama-405b", 405_853_388_800),
            ("mixtral-8x7b", 46_702_792_704),
            ("mixtral-8x22b", 140_620_634_112),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("qwen3-235b-a22b", 235_093_634_560),
            ("deepseek-moe-16b", 16_375_728_128),
            // With the router's biases, and without the layer that predicts a second token.
            ("deepseek-v3", 671_026_419_200),
            ("qwen3-8b", 8_190_735_360),
        ] {
            assert_eq!(ModelShape::preset(name).unwrap().parameters(), parameters, "{name}");
        }
        // Published as "175 billion" and "13 billion active".
        assert_eq!(ModelShape::preset("gpt3-175b").unwrap().parameters() / 1_000_000_000, 174);
        assert_eq!(ModelShape::preset("mixtral-8x7b").unwrap().active_parameters(), 12_879_925_248);
        // Published as 3.3, 22, 2.8, 37 and 39 billion.
        for (name, active) in [
            ("qwen3-30b-a3b", 3_353_032_704),
            ("qwen3-235b-a22b", 22_190_763_520),
            ("deepseek-moe-16b", 2_828_650_496),
            ("deepseek-v3", 37_552_297_472),
            ("mixtral-8x22b", 39_152_031_744),
        ] {
            assert_eq!(ModelShape::preset(name).unwrap().active_parameters(), active, "{name}");
        }
        for name in ["tiny", "tiny-moe"] {
            assert!((1_000_000..3_000_000).contains(&ModelShape::preset(name).unwrap().parameters()));
        }
    }

    #[test]
    fn tensors_have_the_shapes_of_the_published_checkpoints() {
        let model = ModelShape::preset("llama-8b").unwrap();
        let tensors = model.tensors();
        let shape =
            |name| tensors.iter().find(|tensor| tensor.name == name).map(|tensor| (tensor.rows, tensor.columns));
        assert_eq!(shape("embedding"), Some((128_256, 4096)));
        assert_eq!(shape("k"), Some((1024, 4096)));
        assert_eq!(shape("output"), Some((4096, 4096)));
        assert_eq!(shape("down"), Some((4096, 14_336)));
        assert_eq!(tensors.len(), 1 + 32 * 9 + 2);
    }
}
