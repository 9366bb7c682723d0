//! Paths as they stand in a record: with a token where one applies, so that a record says nothing of the machine it doesn't have to.

/// Directories that paths of one run may start at.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    roots: Vec<(String, &'static str)>,
}

impl Roots {
    /// `base`: where the campaign's relative paths start; `state`: the keeper's directory; `home`: of the agent's user.
    #[must_use]
    pub fn new(base: &str, state: Option<&str>, home: Option<&str>) -> Roots {
        let given = [(Some(base), "$CAMPAIGN"), (state, "$STATE"), (home, "~")];
        let mut roots: Vec<(String, &str)> = given
            .into_iter()
            .filter_map(|(path, token)| Some((path?.trim_end_matches('/').to_owned(), token)))
            .filter(|(path, _)| path.starts_with('/'))
            .collect();
        // The most exact one counts: a campaign often lies in the home directory.
        roots.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Roots { roots }
    }

    /// The path with its root replaced; any other text as it is.
    #[must_use]
    pub fn token(&self, path: &str) -> String {
        for (root, token) in &self.roots {
            match path.strip_prefix(root.as_str()) {
                Some("") => return (*token).to_owned(),
                Some(rest) if rest.starts_with('/') => return format!("{token}{rest}"),
                _ => {}
            }
        }
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_root_counts_and_names_are_not_cut() {
        let roots = Roots::new("/home/u/bench", Some("/home/u/.local/state/isotherm/k"), Some("/home/u"));
        let told = ["/home/u/bench/m.onnx", "/home/u/bench", "/home/u/benches/x", "/home/u/.local/state/isotherm/k/scratch/1", "/opt/x", "--flag"];
        let told: Vec<String> = told.iter().map(|p| roots.token(p)).collect();
        assert_eq!(told, ["$CAMPAIGN/m.onnx", "$CAMPAIGN", "~/benches/x", "$STATE/scratch/1", "/opt/x", "--flag"]);
    }
}
