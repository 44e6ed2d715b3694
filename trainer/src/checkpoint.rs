//! Checkpoints: everything training goes on from, in safetensors files that any tool opens.
//!
//! A checkpoint is a directory with a file for each stage and tensor rank. Shards of replicas are put together when it
//! is written, so it can be read into another number of replicas and another stage of ZeRO.

use std::{
    collections::HashMap,
    fs,
    io::{ErrorKind, Read},
    ops::Range,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};
use stepscope_plan::{Coordinates, ModelShape, ParallelLayout, Part, Slot};
use stepscope_traces::{MemoryCategory, open_regular};

use crate::{
    backend::{Stream, Tensor},
    comm::Groups,
    config::TrainConfig,
    data::map_file,
    error::TrainError,
    optimizer_settings::OptimizerSettings,
    parts::RankParts,
    state::State,
};

/// The file that says what a checkpoint is of; it is written last.
const DESCRIPTION: &str = "checkpoint.json";

/// More than any description has.
const MOST_DESCRIPTION: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Description {
    /// Steps that were taken.
    step: u64,
    seed: u64,
    model: ModelShape,
    tp: u64,
    pp: u64,
    chunks: u64,
    /// Sequences of a step and tokens of each: the same data needs the same.
    global_batch: u64,
    sequence_length: u64,
    /// How weights were updated; older checkpoints do not say.
    optimizer: Option<OptimizerSettings>,
    /// The weight of the z-loss, and whether data was held out; neither, in older ones.
    #[serde(default)]
    z_loss: f64,
    #[serde(default)]
    holds_out: bool,
}

/// Writes a checkpoint of what comes before `step`, under `directory`. All ranks do so together.
pub(crate) fn save(
    directory: &Path,
    config: &TrainConfig,
    at: Coordinates,
    step: u64,
    state: &State,
    parts: &RankParts,
    groups: &Groups,
) -> Result<(), TrainError> {
    let path = directory.join(format!("step-{step:06}"));
    let partial = path.with_extension("partial");
    parts.backend.synchronize()?;
    let gathered = gather(state, parts, groups)?;
    if at.is_first_replica() {
        let written = fs::create_dir_all(&partial)
            .map_err(TrainError::file("create", &partial))
            .and_then(|()| write(&partial.join(file_name(at)), state, &gathered));
        if written.is_err() {
            // A disk that is full needs it more than anyone else does.
            drop(fs::remove_dir_all(&partial));
        }
        written?;
    }
    // The description makes it a checkpoint, so everyone's part has to be there before.
    if let Some(world) = &groups.world {
        parts.communicator.barrier(world, Stream::Compute);
        parts.backend.synchronize()?;
    }
    if at.is_first_replica() && (at.tp, at.stage) == (0, 0) {
        let layout = config.layout;
        let (model, seed) = (config.model.clone(), config.seed);
        let ParallelLayout { tp, pp, chunks, sequence_length, .. } = layout;
        let global_batch = layout.global_batch();
        let optimizer = Some(config.optimizer);
        let (z_loss, holds_out) = (config.z_loss, config.evaluate_every.is_some());
        let description = Description {
            step,
            seed,
            model,
            tp,
            pp,
            chunks,
            global_batch,
            sequence_length,
            optimizer,
            z_loss,
            holds_out,
        };
        let file = partial.join(DESCRIPTION);
        let text = serde_json::to_string_pretty(&description).map_err(TrainError::file("write", &file))?;
        fs::write(&file, text + "\n").map_err(TrainError::file("write", &file))?;
        fs::rename(&partial, &path).map_err(TrainError::file("rename", &partial))?;
    }
    Ok(())
}

fn file_name(at: Coordinates) -> String {
    format!("stage-{}-tensor-{}.safetensors", at.stage, at.tp)
}

/// The name of a tensor in a file.
fn tensor_name(slot: &Slot, kind: &str) -> String {
    let part = match slot.part {
        Part::Embedding => "embedding".to_owned(),
        Part::TiedEmbedding => "tied_embedding".to_owned(),
        Part::Layer(layer) => format!("layers.{layer}"),
        Part::Experts(layer) => format!("layers.{layer}.experts.{}", slot.copy),
        Part::Head => "head".to_owned(),
    };
    format!("{part}.{}.{kind}", slot.name)
}

/// What is saved, each as large as what this rank updates.
fn saved(state: &State, unit: usize) -> Vec<(&'static str, Tensor)> {
    let owned = state.owned(unit);
    let optimizer = state.optimizer.tensors().into_iter().map(|(kind, tensor)| (kind, tensor.slice(owned.clone())));
    let mut saved: Vec<(&'static str, Tensor)> = optimizer.collect();
    // What has no master copy is its own.
    if state.optimizer.master.is_none() {
        saved.push(("master", state.owned_weights(unit)));
    }
    saved
}

/// The values of every unit, whole: by unit and kind.
fn gather(
    state: &State,
    parts: &RankParts,
    groups: &Groups,
) -> Result<HashMap<(usize, &'static str), Vec<f32>>, TrainError> {
    let mut gathered = HashMap::new();
    for unit in 0..state.placement.units.len() {
        let elements = state.range(unit).len();
        for (kind, mine) in saved(state, unit) {
            let whole = match &groups.data {
                Some(group) if mine.elements() < elements => {
                    let whole = parts.backend.allocate(elements, mine.dtype(), MemoryCategory::Communication);
                    parts.communicator.all_gather(group, Stream::Compute, &mine, &whole);
                    whole
                }
                _ => mine,
            };
            let values = parts.backend.download(&whole)?;
            gathered.insert((unit, kind), values.into_iter().map(|value| value as f32).collect());
        }
    }
    Ok(gathered)
}

fn write(path: &Path, state: &State, gathered: &HashMap<(usize, &'static str), Vec<f32>>) -> Result<(), TrainError> {
    let mut views = Vec::new();
    for ((unit, kind), values) in gathered {
        let unit = &state.placement.units[*unit];
        for slot in state.placement.slots_of(unit) {
            let values = bytemuck::cast_slice(&values[place(slot, unit.range.start)]);
            let shape = vec![slot.rows as usize, slot.columns as usize];
            let view = TensorView::new(Dtype::F32, shape, values).map_err(TrainError::file("write", path))?;
            views.push((tensor_name(slot, kind), view));
        }
    }
    safetensors::serialize_to_file(views, None, path).map_err(TrainError::file("write", path))
}

/// Where a tensor lies in its unit.
fn place(slot: &Slot, unit_start: u64) -> Range<usize> {
    let range = slot.range();
    (range.start - unit_start) as usize..(range.end - unit_start) as usize
}

/// What the checkpoint that is meant is of.
fn described(path: &Path) -> Result<(PathBuf, Description), TrainError> {
    let path = find(path)?;
    let file = path.join(DESCRIPTION);
    let mut text = String::new();
    // Whatever it is, it is not read without end.
    let read = open_regular(&file).and_then(|opened| opened.take(MOST_DESCRIPTION).read_to_string(&mut text));
    read.map_err(TrainError::file("read", &file))?;
    let description = serde_json::from_str(&text).map_err(TrainError::file("parse", &file))?;
    Ok((path, description))
}

/// What is to be done otherwise than before the checkpoint to go on from.
pub fn changed_settings(config: &TrainConfig) -> Vec<String> {
    let Some((_, before)) = config.resume.as_deref().and_then(|path| described(path).ok()) else { return Vec::new() };
    let mut changed = before.optimizer.map(|before| before.differences(&config.optimizer)).unwrap_or_default();
    if before.z_loss != config.z_loss {
        changed.push(format!("z-loss {} → {}", before.z_loss, config.z_loss));
    }
    match (before.holds_out, config.evaluate_every.is_some()) {
        (true, false) => changed.push("what was held out is trained on".into()),
        (false, true) => changed.push("what is evaluated on was trained on".into()),
        _ => {}
    }
    changed
}

/// Finds the checkpoint that is meant, and says why training cannot go on from it.
pub(crate) fn check(path: &Path, config: &TrainConfig) -> Result<(PathBuf, u64), TrainError> {
    let (path, description) = described(path)?;
    let layout = config.layout;
    let Description { step, seed, model, tp, pp, chunks, global_batch, sequence_length, .. } = description;
    let why = if model != config.model {
        format!("it is from another model, {}", model.name)
    } else if (tp, pp, chunks) != (layout.tp, layout.pp, layout.chunks) {
        format!("it is from tp {tp}, pp {pp} and {chunks} chunks per stage; only dp and zero may differ")
    } else if seed != config.seed {
        format!("its seed is {seed}, so the data order would differ")
    } else if (global_batch, sequence_length) != (layout.global_batch(), layout.sequence_length) {
        let (batch, length) = (layout.global_batch(), layout.sequence_length);
        format!(
            "its steps have {global_batch} sequences of {sequence_length} tokens; these settings have {batch} of {length}"
        )
    } else if step >= config.steps {
        format!("it is at step {step}, so --steps {} leaves nothing to do", config.steps)
    } else {
        return Ok((path, step));
    };
    Err(TrainError::File { action: "resume from", path, why })
}

/// As [`check`], and that the files of all ranks are there and whole.
pub(crate) fn check_files(path: &Path, config: &TrainConfig) -> Result<(), TrainError> {
    let (path, _) = check(path, config)?;
    let ParallelLayout { tp, pp, .. } = config.layout;
    for (stage, tp) in (0..pp).flat_map(|stage| (0..tp).map(move |tp| (stage, tp))) {
        let file = path.join(file_name(Coordinates { stage, dp: 0, cp: 0, tp }));
        SafeTensors::deserialize(&open(&file)?).map_err(TrainError::file("read", &file))?;
    }
    Ok(())
}

fn open(file: &Path) -> Result<Mmap, TrainError> {
    let opened = open_regular(file).and_then(|opened| map_file(&opened));
    opened.map_err(TrainError::file("open", file))
}

/// Reads a checkpoint into a rank's state: the step to go on with.
pub(crate) fn restore(path: &Path, config: &TrainConfig, at: Coordinates, state: &State) -> Result<u64, TrainError> {
    let (path, step) = check(path, config)?;
    let wrong = |why: String| Err(TrainError::File { action: "resume from", path: path.clone(), why });
    let file = path.join(file_name(at));
    let bytes = open(&file)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(TrainError::file("read", &file))?;
    for unit in 0..state.placement.units.len() {
        let of = &state.placement.units[unit];
        for kind in ["master", "first_moment", "second_moment"] {
            let mut values = vec![0.0_f32; of.elements() as usize];
            for slot in state.placement.slots_of(of) {
                let name = tensor_name(slot, kind);
                let tensor = tensors.tensor(&name).map_err(TrainError::file("read", &file))?;
                let shape = [slot.rows as usize, slot.columns as usize];
                if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                    let (shape, dtype) = (tensor.shape(), tensor.dtype());
                    return wrong(format!("{name} has unexpected type {dtype:?} or shape {shape:?}"));
                }
                let target = &mut values[place(slot, of.range.start)];
                bytemuck::cast_slice_mut(target).copy_from_slice(tensor.data());
            }
            state.restore(unit, kind, values);
        }
    }
    Ok(step)
}

/// Refuses to write checkpoints among others, or among anything else: none would be overwritten, and the training would
/// end at the first one.
pub(crate) fn check_room(directory: &Path) -> Result<(), TrainError> {
    match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(TrainError::File {
            action: "write checkpoints into",
            path: directory.to_owned(),
            why: "it is not empty".into(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(TrainError::file("write checkpoints into", directory)(error)),
    }
}

/// The checkpoint that is meant: a checkpoint, or the newest one of a run.
fn find(path: &Path) -> Result<PathBuf, TrainError> {
    if path.join(DESCRIPTION).exists() {
        return Ok(path.to_owned());
    }
    let inside = [path.join("checkpoints"), path.to_owned()];
    let entries = inside.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    let step = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("step-")?.parse::<u64>().ok();
    let checkpoints = entries.flatten().map(|entry| entry.path()).filter(|path| path.join(DESCRIPTION).exists());
    let newest = checkpoints.filter_map(|path| Some((step(&path)?, path))).max();
    let why = if path.exists() { "it contains no checkpoint" } else { "it does not exist" };
    newest.map(|(_, path)| path).ok_or(TrainError::File {
        action: "resume from",
        path: path.to_owned(),
        why: why.into(),
    })
}
