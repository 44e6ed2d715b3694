//! The texts of the kernels, and what they are compiled with.

use std::fmt::Write;

/// A text that is compiled by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Elementwise,
    Norm,
    Rope,
    Swiglu,
    Embedding,
    CrossEntropy,
    Optimizer,
    Experts,
    Parts,
    AttentionForward,
    AttentionBackwardKeys,
    AttentionBackwardQueries,
    AttentionSingle,
    AttentionMerge,
}

impl Source {
    /// All that any training needs.
    pub(super) const ALWAYS: [Source; 7] = [
        Source::Elementwise,
        Source::Norm,
        Source::Rope,
        Source::Swiglu,
        Source::Embedding,
        Source::CrossEntropy,
        Source::Optimizer,
    ];

    /// What mixtures of experts need beside that.
    #[cfg(test)]
    pub(super) const OF_EXPERTS: [Source; 2] = [Source::Experts, Source::Parts];

    /// The file's name, for the compiler's messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Elementwise => "elementwise.cu",
            Source::Norm => "norm.cu",
            Source::Rope => "rope.cu",
            Source::Swiglu => "swiglu.cu",
            Source::Embedding => "embedding.cu",
            Source::CrossEntropy => "cross_entropy.cu",
            Source::Optimizer => "optimizer.cu",
            Source::Experts => "experts.cu",
            Source::Parts => "parts.cu",
            Source::AttentionForward => "attention_forward.cu",
            Source::AttentionBackwardKeys => "attention_backward_keys.cu",
            Source::AttentionBackwardQueries => "attention_backward_queries.cu",
            Source::AttentionSingle => "attention_single.cu",
            Source::AttentionMerge => "attention_merge.cu",
        }
    }

    fn body(self) -> &'static str {
        match self {
            Source::Elementwise => include_str!("sources/elementwise.cu"),
            Source::Norm => include_str!("sources/norm.cu"),
            Source::Rope => include_str!("sources/rope.cu"),
            Source::Swiglu => include_str!("sources/swiglu.cu"),
            Source::Embedding => include_str!("sources/embedding.cu"),
            Source::CrossEntropy => include_str!("sources/cross_entropy.cu"),
            Source::Optimizer => include_str!("sources/optimizer.cu"),
            Source::Experts => include_str!("sources/experts.cu"),
            Source::Parts => include_str!("sources/parts.cu"),
            Source::AttentionForward => include_str!("sources/attention_forward.cu"),
            Source::AttentionBackwardKeys => include_str!("sources/attention_backward_keys.cu"),
            Source::AttentionBackwardQueries => include_str!("sources/attention_backward_queries.cu"),
            Source::AttentionSingle => include_str!("sources/attention_single.cu"),
            Source::AttentionMerge => include_str!("sources/attention_merge.cu"),
        }
    }

    /// What comes before it.
    fn preludes(self) -> &'static [(&'static str, &'static str)] {
        const ALL: &[(&str, &str)] = &[
            ("prelude.cu", include_str!("sources/prelude.cu")),
            ("attention_heads.cu", include_str!("sources/attention_heads.cu")),
            ("attention_tile.cu", include_str!("sources/attention_tile.cu")),
        ];
        match self {
            Source::AttentionForward | Source::AttentionBackwardKeys | Source::AttentionBackwardQueries => ALL,
            Source::AttentionSingle => &ALL[..2],
            _ => &ALL[..1],
        }
    }

    /// What is compiled: all it consists of, each part with its own line numbers.
    pub(super) fn text(self) -> String {
        let mut text = String::new();
        for (name, part) in self.preludes().iter().copied().chain([(self.name(), self.body())]) {
            let _ = writeln!(text, "#line 1 \"{name}\"");
            text.push_str(part);
        }
        text
    }
}

/// A source and the constants it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Unit {
    pub(super) source: Source,
    pub(super) constants: Vec<(&'static str, usize)>,
}

impl From<Source> for Unit {
    fn from(source: Source) -> Unit {
        Unit { source, constants: Vec::new() }
    }
}
