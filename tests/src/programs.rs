//! Where the programs under test are: built into the same directory as the running one.

use std::path::{Path, PathBuf};

/// A program of this workspace: `leasekeeper` (the extension), `bootstrap` (the Rust example), `function` (the tests' own).
///
/// # Panics
/// It was not built; the message says how to.
pub fn built(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    // Tests run from `deps/`, programs from the directory above it.
    let found = this.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not built: run `cargo build --workspace --bins` first"))
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").join(path)
}

/// The folder for `NODE_PATH` in which a Node function finds the package `leasekeeper`, as in the layer.
pub fn node_path() -> PathBuf {
    in_layer("nodejs/node_modules")
}

/// The folder for `PYTHONPATH` in which a Python function finds the package `leasekeeper`, as in the layer.
pub fn python_path() -> PathBuf {
    in_layer("python")
}

/// A folder of what becomes `/opt`, laid out beside the built programs' folder: packages as their users get them.
fn in_layer(folder: &str) -> PathBuf {
    let programs = built("leasekeeper");
    let target = programs.ancestors().nth(2).expect("programs lie in a profile's folder of the target directory");
    target.join("opt").join(folder)
}

/// The clients' packages, laid out as in the layer, are there.
///
/// # Errors
/// They are not; says how to make them.
pub fn clients_are_laid_out() -> Result<(), &'static str> {
    let there = node_path().join("leasekeeper").is_dir() && python_path().join("leasekeeper").is_dir();
    if there {
        Ok(())
    } else {
        Err("the Python and Node packages are not laid out: `make clients` does it, with python3")
    }
}

/// Every Rust source of the workspace's packages, one after the other.
///
/// # Panics
/// The repository cannot be read.
pub fn sources() -> String {
    fn read(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                read(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).expect("a source is UTF-8"));
            }
        }
    }
    let mut text = String::new();
    for folder in ["extension", "runtime-lib", "tests"] {
        read(&repository(folder), &mut text);
    }
    text
}
