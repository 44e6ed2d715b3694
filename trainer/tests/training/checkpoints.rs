use std::{collections::BTreeMap, fs, path::Path};

use safetensors::SafeTensors;
use stepscope_plan::{ParallelLayout, Part, Placement, Precision, Zero};
use stepscope_trainer::{SaveEvery, TrainConfig};
use tempfile::TempDir;

use crate::support::{config, in_bf16, layouts, losses, single};

pub(crate) fn saving(config: &TrainConfig, directory: &Path, steps: u64) -> TrainConfig {
    TrainConfig { save: Some(SaveEvery { steps, directory: directory.to_owned() }), ..config.clone() }
}

#[test]
fn a_run_that_stopped_goes_on_as_if_it_had_not() {
    let base = ParallelLayout { dp: 2, micro_batch: 2, micro_batches: 2, ..single() };
    for (layout, others) in [
        (single(), vec![single()]),
        (
            ParallelLayout { zero: Zero::Three, ..base },
            vec![
                ParallelLayout { zero: Zero::Three, ..base },
                ParallelLayout { zero: Zero::One, ..base },
                ParallelLayout { dp: 4, micro_batches: 1, zero: Zero::Two, ..base },
                ParallelLayout { dp: 1, micro_batches: 4, ..base },
            ],
        ),
        (
            ParallelLayout { zero: Zero::Three, unit_layers: 3, ..base },
            vec![
                ParallelLayout { zero: Zero::Three, ..base },
                ParallelLayout { zero: Zero::One, unit_layers: 8, ..base },
                ParallelLayout { dp: 1, micro_batches: 4, ..base },
            ],
        ),
        (
            ParallelLayout { tp: 2, pp: 2, ..base },
            vec![ParallelLayout { tp: 2, pp: 2, dp: 1, micro_batches: 4, ..base }],
        ),
    ] {
        let config = in_bf16(&config(layout), Precision::Fp32);
        let whole = losses(&config, None).unwrap();
        let directory = TempDir::new().unwrap();
        let first = losses(&TrainConfig { steps: 3, ..saving(&config, directory.path(), 3) }, None).unwrap();
        assert_eq!(first, whole[..3]);
        for other in others {
            let resumed =
                TrainConfig { layout: ParallelLayout { precision: Precision::Bf16, ..other }, ..config.clone() };
            let resumed = TrainConfig { resume: Some(directory.path().to_owned()), ..resumed };
            let second = losses(&resumed, None).unwrap();
            assert_eq!(second.len(), 2);
            if other == layout {
                assert_eq!(second, whole[3..], "the same layout goes on to the last bit");
            }
            for (loss, expected) in second.iter().zip(&whole[3..]) {
                assert!((loss - expected).abs() < 2e-2 * expected, "{other:?}: {second:?}, not {:?}", &whole[3..]);
            }
        }
    }
}

/// A tensor by its part of the model, its name there, and what of it is saved.
pub(crate) type Key = (Part, &'static str, &'static str);

/// Every tensor of the model, put together from the files of all ranks.
pub(crate) fn assembled(config: &TrainConfig, checkpoint: &Path) -> BTreeMap<Key, Vec<f32>> {
    let mut tensors = BTreeMap::new();
    for rank in 0..config.layout.world_size() {
        let at = config.layout.coordinates(rank);
        let file = checkpoint.join(format!("stage-{}-tensor-{}.safetensors", at.stage, at.tp));
        let bytes = fs::read(&file).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for slot in Placement::of(&config.model, &config.layout, at).slots {
            let part = match slot.part {
                Part::Embedding => "embedding".to_owned(),
                Part::Head => "head".to_owned(),
                Part::TiedEmbedding => "tied_embedding".to_owned(),
                Part::Layer(layer) | Part::Experts(layer) => format!("layers.{layer}"),
            };
            for kind in ["master", "first_moment", "second_moment"] {
                let tensor = file.tensor(&format!("{part}.{}.{kind}", slot.name)).unwrap();
                let values: Vec<f32> =
                    tensor.data().chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
                let (rows, columns) = slot.whole;
                let whole = tensors.entry((slot.part, slot.name, kind));
                let whole: &mut Vec<f32> = whole.or_insert_with(|| vec![f32::NAN; (rows * columns) as usize]);
                for row in 0..slot.rows {
                    let from = (row * slot.columns) as usize;
                    let to = ((slot.first_row + row) * columns + slot.first_column) as usize;
                    let width = slot.columns as usize;
                    whole[to..to + width].copy_from_slice(&values[from..from + width]);
                }
            }
        }
    }
    tensors
}

#[test]
fn shards_of_all_ranks_make_the_state_of_one() {
    let state = |config: &TrainConfig| {
        let directory = TempDir::new().unwrap();
        losses(&TrainConfig { steps: 1, ..saving(config, directory.path(), 1) }, None).unwrap();
        assembled(config, &directory.path().join("step-000001"))
    };
    let expected = state(&config(single()));
    for (name, config) in layouts() {
        let found = state(&config);
        assert_eq!(found.len(), expected.len(), "{name}");
        for ((key, found), expected) in found.iter().zip(expected.values()) {
            let scale = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            let error = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max);
            // Adam divides the gradient by its size, so where that is all rounding, its sign decides.
            let tolerance = if key.2 == "master" { 1.3e-3 } else { 1e-4 * scale };
            assert!(error <= tolerance, "{name}: {key:?} is off by {error}, of {scale}");
        }
    }
}

#[test]
fn a_checkpoint_of_something_else_is_refused() {
    let directory = TempDir::new().unwrap();
    let base = config(single());
    losses(&TrainConfig { steps: 1, ..saving(&base, directory.path(), 1) }, None).unwrap();
    let resumed = TrainConfig { resume: Some(directory.path().to_owned()), ..base.clone() };
    let error = |config: TrainConfig| losses(&config, None).unwrap_err().to_string();
    let split = TrainConfig { layout: ParallelLayout { tp: 2, ..single() }, ..resumed.clone() };
    assert!(error(split).contains("it has tp 1, pp 1 and chunks 1, which have to be the same"));
    assert!(error(TrainConfig { seed: 1, ..resumed.clone() }).contains("its seed is 0"));
    let mut wider = resumed.clone();
    wider.model.ffn = 128;
    assert!(error(wider).contains("another model"));
    let file = directory.path().join("step-000001/stage-0-tensor-0.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(error(resumed.clone()).contains("cannot read"));
    let nowhere = TrainConfig { resume: Some(directory.path().join("nowhere")), ..base };
    assert!(error(nowhere).contains("does not exist"));
}
