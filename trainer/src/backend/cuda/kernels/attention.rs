//! Attention with grouped queries, causal or to all keys, in tiles, so that no matrix of sequence × sequence exists.
//!
//! The logarithms of rows' sums are batch × heads × sequence here.

use cudarc::driver::sys::CUstream;

use super::{
    super::array::{Array, AttentionArrays},
    Kernels, THREADS, WARP,
    check::{expect, expect_room, suffix},
    launch::Launch,
    source::{Source, Unit},
};
use crate::{
    backend::{DType, Heads},
    error::TrainError,
};

/// Rows that a warp's tensor cores work on at once, and the columns and rows of their operands.
const STEP: usize = 16;
/// Numbers that are copied at once, and that rows of tiles are apart beyond their width.
const PIECE: usize = 8;
/// The widest heads that fit into registers, on tensor cores and without.
const WIDEST_BF16: usize = 128;
const WIDEST_F32: usize = 256;
/// Rows of a tile in single precision, and the threads that share one.
const SINGLE_TILE: usize = 32;
const SINGLE_SHARING: usize = 8;

/// What kernels of attention are compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) head_dim: usize,
    /// Whether a query sees the keys up to its own position, or all of them.
    pub(super) causal: bool,
    /// Whether heads lie so that they can be copied by pieces.
    pub(super) whole_pieces: bool,
}

impl Kind {
    /// Of heads that lie in these arrays.
    fn of(heads: Heads, arrays: &[Array]) -> Kind {
        Kind { head_dim: heads.head_dim, causal: heads.causal, whole_pieces: whole_pieces(heads, arrays) }
    }
}

/// How a kernel is compiled for a kind of heads, and what a block of it takes.
#[derive(Debug)]
pub(super) struct Tiling {
    pub(super) unit: Unit,
    /// Queries or keys that a block has for its own.
    pub(super) rows: usize,
    pub(super) threads: usize,
    pub(super) shared_bytes: usize,
}

impl Tiling {
    /// On tensor cores: warps of so many tiles of queries each, against tiles of keys.
    pub(super) fn forward_bf16(kind: Kind, warps: usize, tiles: usize, keys: usize) -> Tiling {
        let rows = warps * tiles * STEP;
        let constants = vec![
            ("CAUSAL", kind.causal.into()),
            ("HEAD_DIM", kind.head_dim),
            ("WHOLE_PIECES", kind.whole_pieces.into()),
            ("WARPS", warps),
            ("WARP_TILES", tiles),
            ("KEY_TILE", keys),
        ];
        let unit = Unit { source: Source::AttentionForward, constants };
        // Keys and values have two tiles each, of which one is read while the other is filled.
        Tiling { unit, rows, threads: warps * WARP, shared_bytes: (rows + 4 * keys) * row_bytes(kind.head_dim) }
    }

    /// On tensor cores: warps of a tile of keys each, against tiles of queries.
    pub(super) fn keys_bf16(kind: Kind, warps: usize, queries: usize) -> Tiling {
        let constants = vec![
            ("CAUSAL", kind.causal.into()),
            ("HEAD_DIM", kind.head_dim),
            ("WHOLE_PIECES", kind.whole_pieces.into()),
            ("WARPS", warps),
            ("OTHER_TILE", queries),
        ];
        let unit = Unit { source: Source::AttentionBackwardKeys, constants };
        let (rows, numbers) = (warps * STEP, 4 * queries * size_of::<f32>());
        let shared_bytes = (2 * rows + 4 * queries) * row_bytes(kind.head_dim) + numbers;
        Tiling { unit, rows, threads: warps * WARP, shared_bytes }
    }

    /// On tensor cores: warps of so many tiles of queries each, against tiles of keys.
    pub(super) fn queries_bf16(kind: Kind, warps: usize, tiles: usize, keys: usize) -> Tiling {
        let rows = warps * tiles * STEP;
        let constants = vec![
            ("CAUSAL", kind.causal.into()),
            ("HEAD_DIM", kind.head_dim),
            ("WHOLE_PIECES", kind.whole_pieces.into()),
            ("WARPS", warps),
            ("WARP_TILES", tiles),
            ("OTHER_TILE", keys),
        ];
        let unit = Unit { source: Source::AttentionBackwardQueries, constants };
        Tiling { unit, rows, threads: warps * WARP, shared_bytes: (2 * rows + 4 * keys) * row_bytes(kind.head_dim) }
    }

    /// In single precision, with so many tiles of heads and of scores.
    fn single(kind: Kind, tiles: usize, score_tiles: usize) -> Tiling {
        let constants = vec![("CAUSAL", kind.causal.into()), ("HEAD_DIM", kind.head_dim)];
        let numbers = SINGLE_TILE * (tiles * (kind.head_dim + 1) + score_tiles * (SINGLE_TILE + 1));
        Tiling {
            unit: Unit { source: Source::AttentionSingle, constants },
            rows: SINGLE_TILE,
            threads: SINGLE_TILE * SINGLE_SHARING,
            shared_bytes: numbers * size_of::<f32>(),
        }
    }

    /// What is fastest for heads, of what a block has room for.
    pub(super) fn forward(dtype: DType, kind: Kind, room: usize) -> Result<Tiling, TrainError> {
        check_width(dtype, kind.head_dim)?;
        let tensor = |warps, tiles, keys| Tiling::forward_bf16(kind, warps, tiles, keys);
        let tilings = match dtype {
            // Narrow heads leave registers for more scores.
            DType::Bf16 if kind.head_dim <= 64 => vec![tensor(4, 2, 128), tensor(4, 2, 64)],
            DType::Bf16 => vec![tensor(4, 2, 64), tensor(4, 1, 64)],
            _ => vec![Tiling::single(kind, 3, 1)],
        };
        Tiling::fitting(tilings, kind.head_dim, room)
    }

    /// The same for the gradients of keys and values, and for those of queries.
    pub(super) fn backward(dtype: DType, kind: Kind, room: usize) -> Result<[Tiling; 2], TrainError> {
        check_width(dtype, kind.head_dim)?;
        let keys = |warps, queries| Tiling::keys_bf16(kind, warps, queries);
        let queries = |warps, tiles, keys| Tiling::queries_bf16(kind, warps, tiles, keys);
        let (by_keys, by_queries) = match dtype {
            DType::Bf16 if kind.head_dim <= 64 => (vec![keys(4, 128), keys(4, 64)], vec![queries(4, 2, 64)]),
            DType::Bf16 => (vec![keys(4, 64), keys(4, 32)], vec![queries(4, 2, 32), queries(4, 1, 32)]),
            _ => (vec![Tiling::single(kind, 4, 2)], vec![Tiling::single(kind, 4, 2)]),
        };
        Ok([Tiling::fitting(by_keys, kind.head_dim, room)?, Tiling::fitting(by_queries, kind.head_dim, room)?])
    }

    /// The first that a block has the shared memory for.
    fn fitting(tilings: Vec<Tiling>, head_dim: usize, room: usize) -> Result<Tiling, TrainError> {
        let fits = tilings.into_iter().find(|tiling| tiling.shared_bytes <= room);
        fits.ok_or_else(|| {
            let room = room / 1024;
            TrainError::Settings(format!("heads of {head_dim} take more shared memory than the {room} KiB of this GPU"))
        })
    }

    /// Blocks for so many heads of all sequences.
    fn launch(&self, shape: Heads, heads: usize) -> Launch {
        let grid = [heads, shape.batch, shape.sequence.div_ceil(self.rows)];
        Launch::grid(grid, self.threads).shared(self.shared_bytes)
    }
}

/// Bytes of a row of a tile.
fn row_bytes(head_dim: usize) -> usize {
    (head_dim.next_multiple_of(STEP) + PIECE) * DType::Bf16.bytes()
}

fn check_width(dtype: DType, head_dim: usize) -> Result<(), TrainError> {
    let widest = match dtype {
        DType::Bf16 => WIDEST_BF16,
        DType::F32 => WIDEST_F32,
        DType::F64 | DType::U32 => 0,
    };
    if (1..=widest).contains(&head_dim) {
        return Ok(());
    }
    Err(TrainError::Settings(format!(
        "heads of {head_dim} in {dtype:?} are wider than the {widest} that our attention has"
    )))
}

fn check_arrays(heads: Heads, of: AttentionArrays) -> Result<(), TrainError> {
    let AttentionArrays { qkv, out, lse } = of;
    expect("qkv", qkv, heads.tokens() * heads.qkv_width(), qkv.dtype)?;
    expect("the result", out, heads.tokens() * heads.out_width(), qkv.dtype)?;
    expect("the logarithms", lse, heads.tokens() * heads.heads, DType::F32)?;
    if heads.kv_heads > 0 && heads.heads.is_multiple_of(heads.kv_heads) {
        return Ok(());
    }
    Err(TrainError::Disagreement(format!("{} query heads share {} key heads", heads.heads, heads.kv_heads)))
}

/// Whether pieces of heads begin where a piece can be copied from.
fn whole_pieces(heads: Heads, arrays: &[Array]) -> bool {
    let piece_bytes = (PIECE * DType::Bf16.bytes()) as u64;
    heads.head_dim.is_multiple_of(PIECE) && arrays.iter().all(|array| array.address.is_multiple_of(piece_bytes))
}

/// What scores are multiplied by.
fn scale(heads: Heads) -> f32 {
    (heads.head_dim as f64).sqrt().recip() as f32
}

impl Kernels {
    /// Attention; `lse` takes the logarithm of each row's sum.
    pub(crate) fn attention(&self, stream: CUstream, heads: Heads, of: AttentionArrays) -> Result<(), TrainError> {
        let tiling = Tiling::forward(of.qkv.dtype, Kind::of(heads, &[of.qkv, of.out]), self.shared_room)?;
        self.attention_tiled(stream, heads, of, tiling)
    }

    pub(super) fn attention_tiled(
        &self,
        stream: CUstream,
        heads: Heads,
        of: AttentionArrays,
        tiling: Tiling,
    ) -> Result<(), TrainError> {
        check_arrays(heads, of)?;
        let launch = tiling.launch(heads, heads.heads).array(of.qkv).array(of.out).array(of.lse);
        let launch = launch.size(heads.sequence).size(heads.heads).size(heads.kv_heads).float(scale(heads));
        self.start(tiling.unit, "attention_forward", launch, stream)
    }

    /// What [`Kernels::attention_backward`] needs.
    pub(crate) fn attention_backward_workspace_bytes(heads: Heads) -> usize {
        heads.tokens() * heads.heads * size_of::<f32>()
    }

    /// Its gradient, from the inputs, the output and the logarithms; overwrites all of `d_qkv`.
    pub(crate) fn attention_backward(
        &self,
        stream: CUstream,
        heads: Heads,
        of: AttentionArrays,
        d_out: Array,
        d_qkv: Array,
        workspace: Array,
    ) -> Result<(), TrainError> {
        let kind = Kind::of(heads, &[of.qkv, d_out, d_qkv]);
        let tilings = Tiling::backward(of.qkv.dtype, kind, self.shared_room)?;
        self.attention_backward_tiled(stream, heads, of, [d_out, d_qkv, workspace], tilings)
    }

    /// With tilings of its own for the gradients of keys and values, and for those of queries.
    pub(super) fn attention_backward_tiled(
        &self,
        stream: CUstream,
        heads: Heads,
        of: AttentionArrays,
        [d_out, d_qkv, workspace]: [Array; 3],
        [by_keys, by_queries]: [Tiling; 2],
    ) -> Result<(), TrainError> {
        check_arrays(heads, of)?;
        expect("the result's gradient", d_out, of.out.elements, of.out.dtype)?;
        expect("the gradient of qkv", d_qkv, of.qkv.elements, of.qkv.dtype)?;
        expect_room(workspace, Kernels::attention_backward_workspace_bytes(heads))?;
        let sizes = |launch: Launch| launch.size(heads.sequence).size(heads.heads).size(heads.kv_heads);
        let rows = heads.tokens() * heads.heads;
        let launch = Launch::new((rows * WARP).div_ceil(THREADS), THREADS);
        let launch = sizes(launch.array(of.out).array(d_out).array(workspace).size(heads.batch));
        self.start(by_keys.unit.clone(), "attention_row_products", launch, stream)?;
        let gradient = |tiling: &Tiling, blocks_of: usize| {
            let launch = tiling.launch(heads, blocks_of).array(of.qkv).array(d_out).array(of.lse);
            sizes(launch.array(workspace).array(d_qkv)).float(scale(heads))
        };
        let launch = gradient(&by_keys, heads.kv_heads);
        self.start(by_keys.unit, "attention_backward_keys", launch, stream)?;
        let launch = gradient(&by_queries, heads.heads);
        self.start(by_queries.unit, "attention_backward_queries", launch, stream)
    }

    /// Makes the result of attention to some keys, and its logarithms, that of attention to more of them.
    pub(crate) fn merge_attention(
        &self,
        stream: CUstream,
        heads: Heads,
        [out, lse]: [Array; 2],
        [more, more_lse]: [Array; 2],
    ) -> Result<(), TrainError> {
        let (outs, rows) = (heads.tokens() * heads.out_width(), heads.tokens() * heads.heads);
        expect("the result", out, outs, DType::F32)?;
        expect("the result of more keys", more, outs, more.dtype)?;
        for logarithms in [lse, more_lse] {
            expect("the logarithms", logarithms, rows, DType::F32)?;
        }
        let launch = Launch::new((rows * WARP).div_ceil(THREADS), THREADS).array(out).array(lse);
        let launch = launch.array(more).array(more_lse).size(heads.batch).size(heads.sequence);
        let name = format!("merge_attention_{}", suffix(more.dtype)?);
        self.start(Source::AttentionMerge, &name, launch.size(heads.heads).size(heads.head_dim), stream)
    }
}
