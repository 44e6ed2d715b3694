//! What kind of work a kernel is, told by its name once.

use serde::Serialize;

use super::class::Class;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $word:literal [$($part:literal),*],)*) => {
        /// What kind of work a kernel is.
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

            /// What its kernels have in their names, in lower case.
            fn parts(self) -> &'static [&'static str] {
                match self { $(Family::$name => &[$($part),*],)* }
            }
        }
    };
}

families! {
    /// Communication between ranks.
    Communication = "communication" ["nccl", "rccl"],
    /// Copies and fills.
    Copy = "copy" [],
    /// Attention.
    Attention = "attention" ["attention", "flash", "fmha", "sdpa", "dot_do_o", "convert_dq"],
    /// Matrix products.
    Matmul = "matmul" ["matmul", "gemm", "nvjet", "cutlass", "cublas", "xmma", "splitk"],
    /// The optimizer's update.
    Optimizer = "optimizer" ["adam", "optimizer", "multi_tensor", "lamb", "sgd", "squares"],
    /// Norms.
    Norm = "norm" ["norm", "partials"],
    /// Softmax and losses.
    Loss = "loss" ["softmax", "loss", "cross_entropy", "row_maxima", "row_sums"],
    /// Embeddings and other lookups.
    Embedding = "embedding" ["embedding", "index", "gather", "scatter"],
    /// Everything that goes element by element.
    Elementwise = "elementwise" ["elementwise", "swiglu", "silu", "gelu", "rope", "add", "mul", "cast", "dropout", "vectorized"],
    /// What nothing is known of.
    Other = "other" [],
}

impl Family {
    /// The family of an activity.
    pub(crate) fn of(class: Class, name: &str) -> Family {
        match class {
            Class::Communication => Family::Communication,
            Class::Copy => Family::Copy,
            Class::Compute => {
                let name = name.to_lowercase();
                let has = |family: &&Family| family.parts().iter().any(|part| name.contains(part));
                Family::ALL.iter().find(has).copied().unwrap_or(Family::Other)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_people_know_are_sorted_right() {
        for (name, family) in [
            ("matmul_nt", Family::Matmul),
            ("nvjet_sm90_tst_128x256_64x4_4x2_h_bz_coopA_NNN", Family::Matmul),
            ("attention_backward", Family::Attention),
            ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>", Family::Attention),
            ("rms_norm_backward", Family::Norm),
            ("adamw", Family::Optimizer),
            (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
                Family::Optimizer,
            ),
            ("loss_backward", Family::Loss),
            ("embedding", Family::Embedding),
            ("swiglu", Family::Elementwise),
            ("rope_backward", Family::Elementwise),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>",
                Family::Elementwise,
            ),
            ("my_kernel", Family::Other),
        ] {
            assert_eq!(Family::of(Class::Compute, name), family, "{name}");
        }
        assert_eq!(Family::of(Class::Communication, "all_reduce"), Family::Communication);
        assert_eq!(Family::of(Class::Copy, "zero"), Family::Copy);
    }
}
