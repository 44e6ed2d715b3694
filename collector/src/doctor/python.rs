//! Which Python environments have PyTorch.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// The packages of one Python environment that has any of NVIDIA's, or PyTorch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packages {
    /// Their folder.
    pub path: PathBuf,
    /// The version of PyTorch.
    pub torch: Option<String>,
}

pub(super) fn environments(folders: &[PathBuf]) -> Vec<Packages> {
    let packages = folders.iter().map(|path| Packages { path: path.clone(), torch: torch(path) });
    packages.filter(|packages| packages.torch.is_some() || packages.path.join("nvidia").is_dir()).collect()
}

/// What an installer wrote down: asking Python itself would take seconds.
fn torch(packages: &Path) -> Option<String> {
    let entries = fs::read_dir(packages).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name();
        Some(name.to_str()?.strip_prefix("torch-")?.strip_suffix(".dist-info")?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_without_any_of_it_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let [torch, nvidia, neither] = ["a", "b", "c"].map(|name| directory.path().join(name));
        for folder in [torch.join("torch-2.11.0+cu130.dist-info"), nvidia.join("nvidia"), neither.join("numpy")] {
            fs::create_dir_all(folder).unwrap();
        }
        let expected = [
            Packages { path: torch.clone(), torch: Some("2.11.0+cu130".into()) },
            Packages { path: nvidia.clone(), torch: None },
        ];
        assert_eq!(environments(&[torch, nvidia, neither]), expected);
    }
}
