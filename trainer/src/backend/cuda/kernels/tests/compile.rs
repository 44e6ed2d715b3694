use super::super::{
    attention::{Kind, Tiling},
    compile::Compiler,
    nvrtc,
    source::{Source, Unit},
};
use crate::{backend::DType, skipped::skipped};

/// The oldest GPUs the kernels are for, and those of today.
const CAPABILITIES: [(u32, u32); 3] = [(8, 0), (9, 0), (10, 0)];

/// Shared memory that a block can have, on GPUs for graphics and on those for computing.
const ROOMS: [usize; 2] = [99 << 10, 163 << 10];

/// All sources, attention for a few widths of heads.
fn units() -> Vec<Unit> {
    let sources = Source::ALWAYS.into_iter().chain(Source::OF_EXPERTS).chain([Source::AttentionMerge]);
    let mut units: Vec<Unit> = sources.map(Unit::from).collect();
    let kinds = [(DType::Bf16, 64, true), (DType::Bf16, 128, true), (DType::Bf16, 20, false), (DType::F32, 80, true)];
    for ((dtype, head_dim, whole_pieces), causal) in kinds.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let kind = Kind { head_dim, causal, whole_pieces };
        for room in ROOMS {
            let forward = Tiling::forward(dtype, kind, room).unwrap();
            let backward = Tiling::backward(dtype, kind, room).unwrap();
            for tiling in backward.into_iter().chain([forward]) {
                assert!(tiling.shared_bytes <= room);
                if !units.contains(&tiling.unit) {
                    units.push(tiling.unit);
                }
            }
        }
    }
    units
}

#[test]
fn attention_has_a_tiling_for_every_gpu() {
    for unit in units() {
        assert!(units().iter().filter(|other| **other == unit).count() == 1, "{unit:?}");
    }
    let wide = Tiling::forward(DType::F32, Kind { head_dim: 256, causal: true, whole_pieces: true }, 99 << 10)
        .unwrap_err()
        .to_string();
    assert!(wide.contains("heads of 256 take more shared memory than the 99 KiB"), "{wide}");
}

#[test]
fn every_kernel_compiles_for_every_gpu() {
    if let Err(missing) = nvrtc::open() {
        skipped("cuda-libraries", &missing);
        return;
    }
    for (major, minor) in CAPABILITIES {
        let compiler = Compiler::new(major, minor, None).unwrap();
        for unit in units() {
            let code = compiler.compile(&unit).unwrap();
            assert!(code.starts_with(b"\x7fELF"), "{unit:?} for {major}.{minor}");
        }
    }
}

#[test]
fn the_second_time_it_comes_from_the_cache() {
    if let Err(missing) = nvrtc::open() {
        skipped("cuda-libraries", &missing);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(9, 0, Some(directory.path().into())).unwrap();
    let unit = Unit::from(Source::Elementwise);
    assert_eq!(compiler.cached(&unit), None);
    let code = compiler.compile(&unit).unwrap();
    assert_eq!(compiler.cached(&unit), Some(code));
    assert_eq!(Compiler::new(8, 0, Some(directory.path().into())).unwrap().cached(&unit), None);
}

#[test]
fn what_the_compiler_says_is_in_the_error() {
    if let Err(missing) = nvrtc::open() {
        skipped("cuda-libraries", &missing);
        return;
    }
    let error = nvrtc::compile("broken.cu", "__global__ void broken() { nonsense; }", &[]).unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
}
