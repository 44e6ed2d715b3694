//! Checkpoints: everything training goes on from, in safetensors files that any tool opens.
//!
//! A checkpoint is a directory with a file for each stage and tensor rank. Shards of replicas are put together when it
//! is written, so it can be read into another number of replicas and another stage of ZeRO.

mod tensor_file;

use std::{
    collections::HashMap,
    fs,
    io::{ErrorKind, Read},
    ops::Range,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::TensorView};
use serde::{Deserialize, Serialize};
use stepscope_plan::{Coordinates, ModelShape, ParallelLayout, Part, Slot};
use stepscope_traces::{MemoryCategory, Segment, open_regular};

use self::tensor_file::TensorFile;
use crate::{
    backend::{Stream, Tensor},
    comm::{Groups, ProcessGroup},
    config::TrainConfig,
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
    /// Ranks among which experts are spread, each with a file of its own.
    #[serde(default = "one")]
    ep: u64,
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

/// What older checkpoints do not say.
fn one() -> u64 {
    1
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
    let index = config.layout.expert_index(at);
    let is_first = config.layout.is_first_with_experts(at);
    let shared = (state, groups.data.as_ref(), at.is_first_replica(), file_name(at));
    let experts = state.experts.as_deref();
    let experts = experts.map(|state| (state, groups.expert_data.as_ref(), is_first, expert_file_name(at, index)));
    for (state, group, is_writer, name) in [Some(shared), experts].into_iter().flatten() {
        let gathered = gather(state, parts, group)?;
        if !is_writer {
            continue;
        }
        let written = fs::create_dir_all(&partial)
            .map_err(TrainError::file("create", &partial))
            .and_then(|()| write(&partial.join(name), state, &gathered));
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
        let ParallelLayout { tp, pp, chunks, ep, sequence_length, .. } = layout;
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
            ep,
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

/// Where some of the experts are.
fn expert_file_name(at: Coordinates, index: u64) -> String {
    format!("stage-{}-tensor-{}-experts-{index}.safetensors", at.stage, at.tp)
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
    group: Option<&ProcessGroup>,
) -> Result<HashMap<(usize, &'static str), Vec<f32>>, TrainError> {
    let mut gathered = HashMap::new();
    for unit in 0..state.placement.units.len() {
        let elements = state.range(unit).len();
        for (kind, mine) in saved(state, unit) {
            let whole = match group {
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

/// A checkpoint that training can go on from.
struct Found {
    path: PathBuf,
    step: u64,
    /// Among how many files experts are spread.
    ep: u64,
}

impl Found {
    /// Files of experts that a rank may need; none, if there are no experts.
    fn expert_files(&self, config: &TrainConfig, at: Coordinates) -> Vec<PathBuf> {
        let files = if config.model.experts.is_some() { self.ep } else { 0 };
        (0..files).map(|index| self.path.join(expert_file_name(at, index))).collect()
    }
}

/// Finds the checkpoint that is meant, and says why training cannot go on from it.
fn check(path: &Path, config: &TrainConfig) -> Result<Found, TrainError> {
    let (path, description) = described(path)?;
    let layout = config.layout;
    let Description { step, seed, model, tp, pp, chunks, ep, global_batch, sequence_length, .. } = description;
    let why = if model != config.model {
        format!("it is from another model, {}", model.name)
    } else if (tp, pp, chunks) != (layout.tp, layout.pp, layout.chunks) {
        format!("it has tp {tp}, pp {pp} and chunks {chunks}, which have to be the same")
    } else if model.experts.is_some_and(|experts| ep == 0 || !experts.count.is_multiple_of(ep)) {
        format!("it is from ep {ep}, by which its experts are not divisible")
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
        return Ok(Found { path, step, ep });
    };
    Err(TrainError::File { action: "resume from", path, why })
}

/// As [`check`], and that the files of all ranks are there and whole.
pub(crate) fn check_files(path: &Path, config: &TrainConfig) -> Result<(), TrainError> {
    let found = check(path, config)?;
    let ParallelLayout { tp, pp, .. } = config.layout;
    for (stage, tp) in (0..pp).flat_map(|stage| (0..tp).map(move |tp| (stage, tp))) {
        let at = Coordinates { stage, dp: 0, cp: 0, tp };
        for file in [vec![found.path.join(file_name(at))], found.expert_files(config, at)].concat() {
            TensorFile::open(&file)?;
        }
    }
    Ok(())
}

/// Reads a checkpoint into a rank's state: the step to go on with.
pub(crate) fn restore(path: &Path, config: &TrainConfig, at: Coordinates, state: &State) -> Result<u64, TrainError> {
    let found = check(path, config)?;
    restore_from(&[found.path.join(file_name(at))], state, &|_| 0)?;
    if let (Some(state), Some(experts)) = (state.experts.as_deref(), config.model.experts) {
        // Whoever held them when it was written.
        restore_from(&found.expert_files(config, at), state, &|slot| {
            (slot.copy / (experts.count / found.ep)) as usize
        })?;
    }
    Ok(found.step)
}

/// Reads tensors from files, each from the one that has it.
fn restore_from(files: &[PathBuf], state: &State, which: &dyn Fn(&Slot) -> usize) -> Result<(), TrainError> {
    let files = files.iter().map(|file| TensorFile::open(file)).collect::<Result<Vec<_>, _>>()?;
    for unit in 0..state.placement.units.len() {
        let of = &state.placement.units[unit];
        for kind in ["master", "first_moment", "second_moment"] {
            let mut values = vec![0.0_f32; of.elements() as usize];
            for slot in state.placement.slots_of(of) {
                let shape = [slot.rows as usize, slot.columns as usize];
                files[which(slot)].read(&tensor_name(slot, kind), shape, &mut values[place(slot, of.range.start)])?;
            }
            state.restore(unit, kind, values);
        }
    }
    Ok(())
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

/// The newest checkpoint of a run that jobs continue.
pub fn newest_checkpoint(run: &Path) -> Option<PathBuf> {
    Segment::all_of(run).iter().rev().find_map(|segment| find(&segment.path).ok())
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
