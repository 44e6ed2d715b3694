use std::{collections::BTreeMap, process::Command, sync::Mutex};

/// What commands and options there are, by the help of the binary.
#[derive(Default)]
pub(crate) struct Usage {
    helps: Mutex<BTreeMap<String, Option<String>>>,
}

impl Usage {
    /// Every command.
    pub(crate) fn commands(&self) -> Vec<String> {
        let help = self.help("").unwrap_or_default();
        let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
        let names = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
        names
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    }

    /// Commands and options in a line of a shell that there are not.
    pub(crate) fn wrong(&self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let calls = words.iter().enumerate().filter(|(_, word)| **word == "stepscope");
        calls.flat_map(|(place, _)| self.wrong_call(&words[place + 1..])).collect()
    }

    /// The words behind `stepscope`.
    fn wrong_call(&self, words: &[&str]) -> Vec<String> {
        let ends = |word: &&&str| !matches!(**word, "--" | "&" | "&&" | "|" | "||" | ";" | ">");
        let words: Vec<&str> = words.iter().take_while(ends).copied().collect();
        let command = words.first().filter(|word| !word.starts_with('-')).copied().unwrap_or_default();
        let Some(help) = self.help(command) else { return vec![format!("there is no `stepscope {command}`")] };
        let known: Vec<&str> = help.split(|letter: char| !(letter.is_alphanumeric() || letter == '-')).collect();
        let options =
            words.iter().filter(|word| word.starts_with('-')).map(|word| word.split('=').next().unwrap_or(word));
        let unknown = options.filter(|option| !known.contains(option));
        unknown.map(|option| format!("`stepscope {command}` has no {option}")).collect()
    }

    /// The help of a command; of none, if there is no such command.
    fn help(&self, command: &str) -> Option<String> {
        let mut helps = self.helps.lock().unwrap();
        let help = helps.entry(command.to_owned()).or_insert_with(|| {
            let words = [command, "--help"].into_iter().filter(|word| !word.is_empty());
            let output = Command::new(env!("CARGO_BIN_EXE_stepscope")).args(words).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        });
        help.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_options_that_there_are_not_are_found() {
        let usage = Usage::default();
        assert!(usage.commands().contains(&"analyze".into()));
        for fine in [
            "stepscope record --steps 10..20 -- python train.py --wrong",
            "srun -n 8 stepscope train --dp 4 --tp=2 # --wrong",
            "stepscope analyze --format html -o a.html && ls --wrong",
        ] {
            assert_eq!(usage.wrong(fine), [""; 0], "{fine}");
        }
        assert_eq!(usage.wrong("stepscope record --step 1 -- x"), ["`stepscope record` has no --step"]);
        assert_eq!(usage.wrong("a | stepscope analyse x"), ["there is no `stepscope analyse`"]);
    }
}
