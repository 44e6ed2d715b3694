use super::{
    super::{AttentionArrays, attention::Tiling},
    Kernels, gpu,
    timing::{filled, seconds},
};
use crate::backend::Heads;
use half::bf16;
#[test]
#[ignore = "tmp"]
fn sweep() {
    let Some(gpu) = gpu() else { return };
    for d in [128, 64] {
        let heads = Heads { batch: 4, sequence: 2048, heads: 16, kv_heads: 16, head_dim: d };
        let (stream, kernels) = (gpu.stream(), &gpu.kernels);
        let [qkv, d_qkv] = [(); 2].map(|()| filled::<bf16>(gpu, heads.tokens() * heads.qkv_width()));
        let [out, d_out] = [(); 2].map(|()| filled::<bf16>(gpu, heads.tokens() * heads.out_width()));
        let lse = filled::<f32>(gpu, heads.tokens() * heads.heads);
        let room = gpu.workspace(Kernels::attention_backward_workspace_bytes(heads));
        let of = AttentionArrays { qkv: qkv.array, out: out.array, lse: lse.array };
        for (w, t, k) in [
            (4, 2, 64),
            (8, 1, 64),
            (4, 1, 64),
            (4, 2, 32),
            (4, 1, 128),
            (8, 1, 128),
            (8, 1, 32),
            (4, 1, 32),
            (8, 2, 64),
            (4, 2, 128),
            (8, 2, 32),
        ] {
            let tiling = || Tiling::forward_bf16(d, true, w, t, k);
            if let Err(e) = kernels.attention_tiled(stream, heads, of, tiling()) {
                println!("fwd {w} {t} {k}: {e}");
                continue;
            }
            let s = seconds(gpu, || kernels.attention_tiled(stream, heads, of, tiling()).unwrap());
            println!("fwd d{d} {w} {t} {k}: {:.1} us", s * 1e6);
        }
        let base = (4, 64);
        let options = [(4, 64), (8, 64), (4, 32), (8, 32), (4, 128), (8, 128), (4, 16), (8, 16), (12, 64), (12, 32)];
        let pairs = options.map(|o| (o, base)).into_iter().chain(options.map(|o| (base, o)));
        for (a, b) in pairs {
            let tilings = || [Tiling::backward_bf16(d, true, a.0, a.1), Tiling::backward_bf16(d, true, b.0, b.1)];
            let arrays = [d_out.array, d_qkv.array, room.array];
            if let Err(e) = kernels.attention_backward_tiled(stream, heads, of, arrays, tilings()) {
                println!("bwd {a:?} {b:?}: {e}");
                continue;
            }
            let s = seconds(gpu, || kernels.attention_backward_tiled(stream, heads, of, arrays, tilings()).unwrap());
            println!("bwd d{d} {a:?} {b:?}: {:.1} us", s * 1e6);
        }
    }
}
