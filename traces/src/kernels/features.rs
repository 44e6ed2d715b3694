//! What the name of a matrix product says of it: its numbers, its tile, how its matrices lie, and how they are aligned.

use serde::Serialize;
use stepscope_plan::NumberType;

use super::words::{Pattern, Words};

/// Whether each of two matrices is transposed, as BLAS calls it: with columns one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transposes {
    /// Neither.
    Nn,
    /// The second.
    Nt,
    /// The first.
    Tn,
    /// Both.
    Tt,
}

impl Transposes {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Transposes::Nn => "nn",
            Transposes::Nt => "nt",
            Transposes::Tn => "tn",
            Transposes::Tt => "tt",
        }
    }
}

/// What a name says of a matrix product. What it does not say is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmFeatures {
    /// The numbers that are multiplied.
    pub numbers: Option<NumberType>,
    /// The rows and columns of the result that one block of threads computes.
    pub tile: Option<[u32; 2]>,
    /// How its matrices lie.
    pub transposes: Option<Transposes>,
    /// The elements that are read at once, at most.
    pub alignment: Option<u32>,
    /// Whether it is one that has no use for tensor cores.
    pub without_tensor_cores: bool,
}

impl GemmFeatures {
    /// What a name says.
    pub(super) fn of(name: &str) -> GemmFeatures {
        let words = Words::of(name);
        let has = |pattern: &str| Pattern::of(pattern).is_in(&words);
        let is_simt = has("simt") || has("sgemm") || has("*scudnn") || has("^magma*");
        let tensile = name.strip_prefix("Cijk_");
        let numbers = match tensile {
            Some(rest) => numbers_of_tensile(rest),
            None if name.contains("ck::") => numbers_of_ck(name),
            None => numbers_of_nvjet(name).or_else(|| numbers_of_words(&has, is_simt)),
        };
        GemmFeatures {
            numbers,
            tile: tile(name),
            transposes: tensile.map_or_else(|| transposes(name), transposes_of_tensile),
            alignment: name.split("_align").nth(1).and_then(leading_number),
            without_tensor_cores: is_simt && matches!(numbers, None | Some(NumberType::Fp32)),
        }
    }
}

/// By the words for numbers, the most telling first: products of small numbers are summed in large ones.
fn numbers_of_words(has: &impl Fn(&str) -> bool, is_simt: bool) -> Option<NumberType> {
    let any = |words: &[&str]| words.iter().any(|word| has(word));
    match () {
        () if any(&["e2m1", "nvfp4", "mxfp4", "fp4"]) => Some(NumberType::Fp4),
        () if any(&["e4m3*", "e5m2*", "fp8", "f8", "float8*"]) => Some(NumberType::Fp8),
        () if any(&["int8", "s8", "i8"]) => Some(NumberType::Int8),
        () if any(&["bf16", "bfloat16*"]) => Some(NumberType::Bf16),
        () if any(&["f16", "fp16", "half", "h16816gemm", "hgemm", "h1688gemm", "h884gemm"]) => Some(NumberType::Fp16),
        () if any(&["tf32*", "s1688*", "s16168gemm"]) => Some(NumberType::Tf32),
        () if any(&["dgemm", "double", "f64"]) => Some(NumberType::Fp64),
        () if is_simt || any(&["float", "f32", "fp32"]) => Some(NumberType::Fp32),
        () => None,
    }
}

/// cuBLAS's newest: letters say what is multiplied, what sums are, and what comes out.
fn numbers_of_nvjet(name: &str) -> Option<NumberType> {
    let rest = name.strip_prefix("nvjet_")?;
    let letters = rest.split('_').find(|part| !part.starts_with("sm"))?;
    match letters.as_bytes().first()? {
        b't' => Some(NumberType::Bf16),
        b'h' => Some(NumberType::Fp16),
        b's' => Some(NumberType::Tf32),
        b'q' | b'o' => Some(NumberType::Fp8),
        b'd' => Some(NumberType::Fp64),
        _ => None,
    }
}

/// rocBLAS's and hipBLASLt's: behind how matrices lie stands what is multiplied.
fn numbers_of_tensile(rest: &str) -> Option<NumberType> {
    let letters = rest.split('_').find(|part| !part.starts_with(['A', 'B']) || !part.ends_with('k'))?;
    match () {
        () if letters.starts_with("F8") || letters.starts_with("B8") => Some(NumberType::Fp8),
        () if letters.starts_with("F4") => Some(NumberType::Fp4),
        () if letters.starts_with('B') => Some(NumberType::Bf16),
        () if letters.starts_with('H') => Some(NumberType::Fp16),
        () if letters.starts_with('I') => Some(NumberType::Int8),
        () if letters.starts_with('D') => Some(NumberType::Fp64),
        // MI300 multiplies single precision as it is, unless it is told otherwise.
        () if letters.starts_with('S') => Some(NumberType::Fp32),
        () => None,
    }
}

/// Composable Kernel's: of its types, those of the two matrices come first, then that of sums. It keeps bf16 in `unsigned short`,
/// and fp8 in a number of eight bits.
fn numbers_of_ck(name: &str) -> Option<NumberType> {
    let types = name.split(['<', '>', ',', '(', ')']).map(str::trim);
    types.into_iter().find_map(|part| match part {
        "unsigned short" | "ushort" | "__bf16" => Some(NumberType::Bf16),
        "_Float16" | "__half" => Some(NumberType::Fp16),
        "signed char" | "int8_t" => Some(NumberType::Int8),
        "float" => Some(NumberType::Fp32),
        "double" => Some(NumberType::Fp64),
        "unsigned _BitInt" | "_BitInt" => Some(NumberType::Fp8),
        _ if part.starts_with("ck::f8") || part.starts_with("ck::bf8") => Some(NumberType::Fp8),
        _ if part.starts_with("ck::f4") => Some(NumberType::Fp4),
        _ => None,
    })
}

/// Ailk is stored column by column and Alik row by row; so with B.
fn transposes_of_tensile(rest: &str) -> Option<Transposes> {
    let mut parts = rest.split('_');
    match (parts.next()?, parts.next()?) {
        ("Ailk", "Bljk") => Some(Transposes::Nn),
        ("Ailk", "Bjlk") => Some(Transposes::Nt),
        ("Alik", "Bljk") => Some(Transposes::Tn),
        ("Alik", "Bjlk") => Some(Transposes::Tt),
        _ => None,
    }
}

/// `_tn_` in the middle, or `_TNT` at the end, whose third letter is that of the result.
fn transposes(name: &str) -> Option<Transposes> {
    let of = |part: &str| match part {
        "nn" | "NN" | "NNN" | "NNT" => Some(Transposes::Nn),
        "nt" | "NT" | "NTN" | "NTT" => Some(Transposes::Nt),
        "tn" | "TN" | "TNN" | "TNT" => Some(Transposes::Tn),
        "tt" | "TT" | "TTN" | "TTT" => Some(Transposes::Tt),
        _ => None,
    };
    name.split(['_', '<', '>', '(', ' ', ',']).find_map(of)
}

/// The first two numbers with an x between them that may be a tile.
fn tile(name: &str) -> Option<[u32; 2]> {
    let name = name.split_once("tilesize").or(name.split_once("_MT")).map_or(name, |(_, rest)| rest);
    for part in name.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let part = part.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        let mut sides = part.split('x').map(str::parse::<u32>);
        if let (Some(Ok(rows)), Some(Ok(columns))) = (sides.next(), sides.next())
            && [rows, columns].iter().all(|side| (8..=512).contains(side) && side % 8 == 0)
        {
            return Some([rows, columns]);
        }
    }
    None
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_products_are_read() {
        use NumberType::{Bf16, Fp4, Fp8, Fp16, Fp32, Tf32};
        use Transposes::{Nn, Nt, Tn};
        for (name, numbers, tile, transposes, alignment, without) in [
            ("nvjet_sm90_tst_128x256_64x4_4x2_h_bz_coopA_NTN", Some(Bf16), Some([128, 256]), Some(Nt), None, false),
            ("nvjet_hsh_192x8_64x8_4x1_v_bz_TNT", Some(Fp16), Some([192, 8]), Some(Tn), None, false),
            ("nvjet_sm100_qqtst_128x128_128x6_2x1_2cta_v_bz_TNN", Some(Fp8), Some([128, 128]), Some(Tn), None, false),
            ("ampere_sgemm_128x32_nn", Some(Fp32), Some([128, 32]), Some(Nn), None, true),
            (
                "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
                Some(Bf16),
                Some([128, 64]),
                Some(Tn),
                None,
                false,
            ),
            (
                "cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align1>",
                Some(Tf32),
                Some([256, 64]),
                Some(Nt),
                Some(1),
                false,
            ),
            (
                "cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>",
                Some(Fp32),
                Some([128, 32]),
                Some(Nn),
                Some(1),
                true,
            ),
            (
                "cutlass::Kernel<cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_tn_align8>",
                Some(Fp16),
                Some([32, 32]),
                Some(Tn),
                Some(8),
                false,
            ),
            (
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1_kernel__5x_cublas",
                Some(Bf16),
                Some([128, 256]),
                Some(Tn),
                None,
                false,
            ),
            (
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x16x128_MI16x16x1_SN",
                Some(Bf16),
                Some([128, 16]),
                Some(Tn),
                None,
                false,
            ),
            (
                "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1",
                Some(Fp32),
                Some([64, 16]),
                Some(Nt),
                None,
                false,
            ),
            (
                "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<ck::tensor_layout::gemm::RowMajor, unsigned short, unsigned short, \
                 float, float, ck::Tuple<float, float, float>, unsigned short, (ck::Version)0, 256, 32, 64>>(ck::Argument)",
                Some(Bf16),
                None,
                None,
                None,
                false,
            ),
            (
                "void ck::kernel_gemm<ck::GridwiseGemm<ck::f8_t, ck::f8_t, float, float>>(int)",
                Some(Fp8),
                None,
                None,
                None,
                false,
            ),
            ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3", Some(Fp4), Some([128, 16]), None, None, false),
            ("fused_moe_kernel", None, None, None, None, false),
        ] {
            let expected = GemmFeatures { numbers, tile, transposes, alignment, without_tensor_cores: without };
            assert_eq!(GemmFeatures::of(name), expected, "{name}");
        }
    }
}
