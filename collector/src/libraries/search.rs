//! Where a library may be, in the order in which the places are tried.
//!
//! 1. what this process has already loaded: a second copy beside it would not know of the first
//! 2. the folders of `STEPSCOPE_CUDA_LIBRARIES`
//! 3. the loader's own path, with `LD_LIBRARY_PATH`
//! 4. `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`, and `/usr/local/cuda-*` from the newest
//! 5. Python environments: `VIRTUAL_ENV`, `CONDA_PREFIX`, the one of `python3`, the user's
//!
//! A toolkit newer than the driver comes last, wherever it is.

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
};

use super::{Kind, Library};

/// Names folders, with colons between them, that come before all others.
const FOLDERS_VARIABLE: &str = "STEPSCOPE_CUDA_LIBRARIES";

const TARGET: &str = if cfg!(target_arch = "aarch64") { "targets/sbsa-linux/lib" } else { "targets/x86_64-linux/lib" };
const TOOLKIT_FOLDERS: [&str; 4] = ["lib64", "lib", "extras/CUPTI/lib64", TARGET];
/// Where drivers are that the loader does not know of: on WSL, in some clusters' containers, on NixOS.
const DRIVER_FOLDERS: [&str; 3] = ["/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib"];

/// One way to open a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// By a name, if it is loaded already.
    Loaded(String),
    /// By a name that the loader looks up.
    Name(String),
    /// A file that is there.
    File(PathBuf),
}

/// What decides where libraries are looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    /// The folders of [`FOLDERS_VARIABLE`].
    first: Vec<PathBuf>,
    /// Toolkits that variables name.
    toolkits: Vec<PathBuf>,
    /// Where toolkits are installed.
    installed: PathBuf,
    /// Where drivers are.
    drivers: Vec<PathBuf>,
    /// Python environments that variables name.
    environments: Vec<PathBuf>,
    /// Where programs are.
    path: Vec<PathBuf>,
    /// The user's own environment.
    user: Option<PathBuf>,
}

impl Environment {
    pub(super) fn of_this_process() -> Environment {
        let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folders = |name: &str| -> Vec<PathBuf> {
            let value = env::var_os(name).unwrap_or_default();
            env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
        };
        Environment {
            first: folders(FOLDERS_VARIABLE),
            toolkits: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder).collect(),
            installed: "/usr/local".into(),
            drivers: DRIVER_FOLDERS.map(PathBuf::from).into(),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder).collect(),
            path: folders("PATH"),
            user: folder("HOME").map(|home| home.join(".local")),
        }
    }

    /// The folders after the loader's own.
    fn folders(&self, kind: Kind) -> Vec<PathBuf> {
        // A toolkit has a driver to link against, which must never be opened.
        if kind == Kind::Driver {
            return self.drivers.clone();
        }
        let mut folders = Vec::new();
        for toolkit in self.toolkits.iter().cloned().chain(self.installed_toolkits()) {
            folders.extend(TOOLKIT_FOLDERS.map(|folder| toolkit.join(folder)));
        }
        // Conda's packages lie beside Python's.
        folders.extend(self.environments.iter().flat_map(|environment| ["lib", TARGET].map(|f| environment.join(f))));
        for packages in self.packages() {
            let nvidia = listed(&packages.join("nvidia"));
            folders.extend(nvidia.into_iter().map(|package| package.join("lib")));
            folders.push(packages.join("torch/lib"));
        }
        let mut seen = Vec::new();
        folders.retain(|folder| {
            folder.is_dir() && !seen.contains(folder) && {
                seen.push(folder.clone());
                true
            }
        });
        folders
    }

    /// `cuda` first, which is the chosen one; then from the newest.
    fn installed_toolkits(&self) -> Vec<PathBuf> {
        let mut versions: Vec<(Vec<u32>, PathBuf)> = listed(&self.installed)
            .into_iter()
            .filter_map(|path| Some((numbers(path.file_name()?.to_str()?.strip_prefix("cuda-")?), path)))
            .collect();
        versions.sort_by_key(|(version, _)| Reverse(version.clone()));
        [self.installed.join("cuda")].into_iter().chain(versions.into_iter().map(|(_, path)| path)).collect()
    }

    /// The package folders of Python environments.
    pub(super) fn packages(&self) -> Vec<PathBuf> {
        let mut prefixes = self.environments.clone();
        if let Some(python) = self.path.iter().map(|folder| folder.join("python3")).find(|python| python.exists()) {
            let prefix = |python: &Path| Some(python.parent()?.parent()?.to_owned());
            // An environment's `python3` is a link to the one that it was made with, whose packages it may use.
            let found = [prefix(&python), python.canonicalize().ok().as_deref().and_then(prefix)];
            for prefix in found.into_iter().flatten() {
                prefixes.extend([prefix.join("local"), prefix]);
            }
        }
        prefixes.extend(self.user.clone());
        let mut packages: Vec<PathBuf> = Vec::new();
        for prefix in prefixes {
            let mut versions = listed(&prefix.join("lib"));
            versions.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")));
            versions.sort_by_key(|path| Reverse(numbers(&path.to_string_lossy())));
            for folder in
                versions.iter().flat_map(|version| ["site-packages", "dist-packages"].map(|f| version.join(f)))
            {
                if folder.is_dir() && !packages.contains(&folder) {
                    packages.push(folder);
                }
            }
        }
        packages
    }
}

/// Every way to open a library, in order; `newest` is the newest toolkit that the driver can run.
pub(super) fn candidates(library: Library, newest: Option<u32>, environment: &Environment) -> Vec<Candidate> {
    let traits = library.traits();
    let (fitting, too_new): (Vec<u32>, Vec<u32>) =
        traits.majors.iter().partition(|major| newest.is_none_or(|newest| **major <= newest));
    let files = |majors: Vec<u32>| -> Vec<String> { majors.into_iter().map(|major| library.file(major)).collect() };
    // Nobody knows what a file without a version is, until it is open.
    let rounds = [files(fitting), files(too_new), vec![library.plain_file()]];
    let all: Vec<&String> = rounds.iter().flatten().collect();
    let present = |folders: &[PathBuf], names: &[&String]| -> Vec<Candidate> {
        let paths = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        paths.filter(|path| path.is_file()).map(Candidate::File).collect()
    };

    // The plain name first: who asks for that gets what has it, whatever else is loaded.
    let loaded = all.iter().rev().take(1).chain(&all[..all.len() - 1]);
    let mut candidates: Vec<Candidate> = loaded.map(|name| Candidate::Loaded((*name).clone())).collect();
    candidates.extend(present(&environment.first, &all));
    let folders = environment.folders(traits.kind);
    for names in &rounds {
        candidates.extend(names.iter().cloned().map(Candidate::Name));
        candidates.extend(present(&folders, &names.iter().collect::<Vec<_>>()));
    }
    candidates
}

/// What is in a folder, by name.
fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The numbers in a name, so that 12.10 comes after 12.9.
fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A machine in a folder.
    struct Machine(TempDir);

    impl Machine {
        fn with(files: &[&str]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            for file in files {
                let path = machine.path(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            machine
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn environment(&self) -> Environment {
            Environment { installed: self.path("usr/local"), ..Environment::default() }
        }

        /// The files among the candidates, from the machine's root, and the names that the loader is asked for.
        fn order(&self, library: Library, newest: Option<u32>, environment: &Environment) -> Vec<String> {
            let shown = |candidate| match candidate {
                Candidate::Loaded(_) => None,
                Candidate::Name(name) => Some(name),
                Candidate::File(path) => {
                    Some(format!("/{}", path.strip_prefix(self.0.path()).unwrap().to_string_lossy()))
                }
            };
            candidates(library, newest, environment).into_iter().filter_map(shown).collect()
        }
    }

    #[test]
    fn what_is_loaded_comes_first_and_then_the_folders_one_names() {
        let machine = Machine::with(&["mine/libcupti.so.12"]);
        let environment = Environment { first: vec![machine.path("mine")], ..machine.environment() };
        let loaded = |name: &str| Candidate::Loaded(name.into());
        let name = |name: &str| Candidate::Name(name.into());
        let expected = [
            loaded("libcupti.so"),
            loaded("libcupti.so.13"),
            loaded("libcupti.so.12"),
            Candidate::File(machine.path("mine/libcupti.so.12")),
            name("libcupti.so.13"),
            name("libcupti.so.12"),
            name("libcupti.so"),
        ];
        assert_eq!(candidates(Library::Cupti, None, &environment), expected);
    }

    #[test]
    fn toolkits_come_before_python_and_the_newest_first() {
        let machine = Machine::with(&[
            "opt/cuda/lib64/libcupti.so.13",
            "usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
            "usr/local/cuda-12.9/lib64/libcupti.so.12",
            "usr/local/cuda-12.10/lib64/libcupti.so.12",
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
            "venv/lib/python3.12/site-packages/torch/lib/libcupti.so.12",
        ]);
        let environment = Environment {
            toolkits: vec![machine.path("opt/cuda")],
            environments: vec![machine.path("venv")],
            ..machine.environment()
        };
        assert_eq!(
            machine.order(Library::Cupti, Some(13), &environment),
            [
                "libcupti.so.13",
                "libcupti.so.12",
                "/opt/cuda/lib64/libcupti.so.13",
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                "/usr/local/cuda-12.10/lib64/libcupti.so.12",
                "/usr/local/cuda-12.9/lib64/libcupti.so.12",
                "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13",
                "/venv/lib/python3.12/site-packages/torch/lib/libcupti.so.12",
                "libcupti.so",
            ]
        );
    }

    #[test]
    fn a_toolkit_newer_than_the_driver_comes_last() {
        let machine = Machine::with(&[
            "usr/local/cuda/lib64/libnvrtc.so.13",
            "usr/local/cuda/lib64/libnvrtc.so",
            "venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        ]);
        let environment = Environment { environments: vec![machine.path("venv")], ..machine.environment() };
        assert_eq!(
            machine.order(Library::Nvrtc, Some(12), &environment),
            [
                "libnvrtc.so.12",
                "/venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                "libnvrtc.so.13",
                "/usr/local/cuda/lib64/libnvrtc.so.13",
                "libnvrtc.so",
                "/usr/local/cuda/lib64/libnvrtc.so",
            ]
        );
    }

    #[test]
    fn python_on_the_path_names_its_environment_and_the_one_behind_it() {
        let machine = Machine::with(&[
            "usr/bin/python3.12",
            "usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2",
            "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
            "home/.local/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
        ]);
        fs::create_dir_all(machine.path("venv/bin")).unwrap();
        symlink(machine.path("usr/bin/python3.12"), machine.path("venv/bin/python3")).unwrap();
        let environment = Environment {
            path: vec![machine.path("nothing"), machine.path("venv/bin")],
            user: Some(machine.path("home/.local")),
            ..machine.environment()
        };
        // The way behind the link goes through the root's real name.
        let root = machine.0.path().canonicalize().unwrap();
        let files: Vec<String> = candidates(Library::Nccl, None, &environment)
            .into_iter()
            .filter_map(|candidate| match candidate {
                Candidate::File(path) => {
                    Some(path.canonicalize().unwrap().strip_prefix(&root).unwrap().to_string_lossy().into_owned())
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            files,
            [
                "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
                "usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2",
                "home/.local/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
            ]
        );
    }

    #[test]
    fn a_toolkit_has_no_driver() {
        let machine = Machine::with(&["usr/local/cuda/lib64/libcuda.so.1", "wsl/libcuda.so.1"]);
        let environment = Environment { drivers: vec![machine.path("wsl")], ..machine.environment() };
        let expected = ["libcuda.so.1", "/wsl/libcuda.so.1", "libcuda.so"];
        assert_eq!(machine.order(Library::Cuda, None, &environment), expected);
    }

    #[test]
    fn where_nothing_is_only_the_loader_is_asked() {
        let machine = Machine::with(&[]);
        let environment = machine.environment();
        assert_eq!(machine.order(Library::Cudnn, None, &environment), ["libcudnn.so.9", "libcudnn.so"]);
        assert!(environment.packages().is_empty());
    }
}
