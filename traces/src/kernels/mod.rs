//! What a kernel is, told by its name: what kind of work it does, whose it is, and what else the name says.
//!
//! A name is taken apart ([`name`]), its words are looked up in the rules of `catalogue.txt` ([`rules`]), and what names of
//! matrix products say besides is read from it ([`features`]). Each name is looked up once ([`known`]).

mod asked_communication;
mod features;
mod known;
mod name;
mod rules;
mod words;

use serde::Serialize;

pub use self::{
    asked_communication::{AskedCommunication, Carrier},
    features::{GemmFeatures, Transposes},
};
use self::{
    name::{KernelName, NameWords},
    rules::RULES,
    words::{Pattern, Words},
};
use crate::vocabulary::SpanKind;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What kind of work a kernel does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Family {
            $($(#[$doc])* $name,)*
        }

        impl Family {
            /// Every family.
            pub const ALL: &[Family] = &[$(Family::$name),*];

            /// The word for it.
            pub fn word(self) -> &'static str {
                match self { $(Family::$name => $word,)* }
            }

            fn of_word(word: &str) -> Option<Family> {
                Family::ALL.iter().copied().find(|family| family.word() == word)
            }
        }
    };
}

families! {
    /// Communication between ranks.
    Communication = "communication",
    /// Copies and fills that no kernel does.
    Copy = "copy",
    /// Attention.
    Attention = "attention",
    /// Matrix products.
    Matmul = "matmul",
    /// Convolutions and pooling.
    Convolution = "convolution",
    /// The optimizer's update, clipping included.
    Optimizer = "optimizer",
    /// Layer, RMS, batch and group norms.
    Norm = "norm",
    /// Softmax and losses.
    Loss = "loss",
    /// Embeddings and other lookups.
    Embedding = "embedding",
    /// Experts: which token goes to which, and bringing them there on one device.
    Routing = "routing",
    /// Scans of state-space models and of linear attention.
    Recurrence = "recurrence",
    /// Casts to and from numbers with scales: FP8, FP4, INT8.
    Quantization = "quantization",
    /// Sums, maxima and the like.
    Reduction = "reduction",
    /// Sorting, top-k, prefix sums.
    Sort = "sort",
    /// Everything that goes element by element: copies and casts by kernels, too.
    Elementwise = "elementwise",
    /// What nobody knows.
    Other = "other",
}

/// What is known of a kernel by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelKind {
    /// What kind of work it does.
    pub family: Family,
    /// Whose it is, where that is known.
    pub library: Option<&'static str>,
    /// What its name says of the product it computes, if it is one.
    pub gemm: Option<GemmFeatures>,
    /// Whether it is a softmax of which no logarithm is taken: not that of a loss.
    pub is_softmax: bool,
}

impl KernelKind {
    /// What a kernel of this name is.
    pub fn of(name: &str) -> KernelKind {
        known::known(name, || KernelKind::look_up(name))
    }

    fn look_up(name: &str) -> KernelKind {
        let parsed = KernelName::of(name);
        let words = parsed.words();
        let rule = RULES.iter().find(|rule| rule.matches(&parsed, &words));
        let family = rule.map_or(Family::Other, |rule| rule.family);
        KernelKind {
            family,
            library: rule.and_then(|rule| rule.library),
            gemm: matches!(family, Family::Matmul | Family::Convolution).then(|| GemmFeatures::of(&parsed.text)),
            is_softmax: family == Family::Loss && is_softmax(&words),
        }
    }

    /// What a kernel of this name communicates, if it does.
    pub fn communication(name: &str) -> Option<SpanKind> {
        (KernelKind::of(name).family == Family::Communication).then(|| communication_named(name))
    }
}

/// Whether a kernel is a softmax of which no logarithm is taken.
fn is_softmax(NameWords { function, arguments }: &NameWords) -> bool {
    let is_in = |pattern: &str, words: &Words| Pattern::of(pattern).is_in(words);
    let is_logarithm = is_in("*log_soft_max*", function) || is_in("log_soft_max*", arguments);
    // The last two arguments of these: is it a logarithm, is it masked.
    let of_warps = is_in("soft_max_warp*", function) && is_in("true", arguments) && !is_in("false*true", arguments);
    is_in("*soft_max*", function) && !is_logarithm && !of_warps
}

/// The communication that a name tells of.
pub(crate) fn communication_named(name: &str) -> SpanKind {
    let words = Words::of(&KernelName::of(name).function);
    let has = |part: &str| words.text().contains(part);
    match () {
        () if has("allreduce") || has("crossdevicereduce") => SpanKind::AllReduce,
        () if has("reducescatter") => SpanKind::ReduceScatter,
        () if has("allgather") => SpanKind::AllGather,
        () if has("alltoall") || has("dispatch") || has("combine") => SpanKind::AllToAll,
        () if has("broadcast") => SpanKind::Broadcast,
        () if has("barrier") => SpanKind::Barrier,
        () if has("reduce") => SpanKind::Reduce,
        // One kernel does both.
        () if has("send") && has("recv") => SpanKind::Communication,
        () if has("send") => SpanKind::Send,
        () if has("recv") => SpanKind::Receive,
        () => SpanKind::Communication,
    }
}

#[cfg(test)]
mod tests;
