//! The expressions of `when`: read into a tree, checked for what can be compared, and asked about one point.
//!
//! Strict where a slip would leave points out silently: texts and numbers are never equal, and only numbers are larger or smaller. What
//! isn't known yet makes an answer unknown, unless the rest decides it alone.

mod ask;
mod parse;
#[cfg(test)]
mod tests;

use super::model::AxisValue;
use std::{fmt, ops::Range};

/// What is wrong with an expression, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: Range<usize>,
    pub message: String,
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    Value(AxisValue),
    /// The device has never said.
    NotYet,
    /// It was asked, and there is no such thing.
    Nothing,
}

/// An expression that was understood.
#[derive(Debug)]
pub struct Expression {
    root: Node,
}

#[derive(Debug)]
struct Node {
    at: Range<usize>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Value(AxisValue),
    Name(String),
    Not(Box<Node>),
    /// At least two.
    And(Vec<Node>),
    Or(Vec<Node>),
    /// `a < b <= c`: each with its neighbour.
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    In {
        value: Box<Node>,
        list: Vec<Node>,
        inside: bool,
    },
    Arithmetic(Box<Node>, Operator, Box<Node>),
    Negative(Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
    DivideWhole,
    Remainder,
    Power,
}

/// Which kinds of values something can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub const NUMBER: Kinds = Kinds(1);
    pub const TEXT: Kinds = Kinds(2);
    pub const TRUTH: Kinds = Kinds(4);
    /// Several texts at once: an option that is given more than once.
    pub const TEXTS: Kinds = Kinds(8);
    pub const ANY: Kinds = Kinds(15);

    #[must_use]
    pub fn of(value: &AxisValue) -> Kinds {
        match value {
            AxisValue::Bool(_) => Kinds::TRUTH,
            AxisValue::Int(_) | AxisValue::Float(_) => Kinds::NUMBER,
            AxisValue::Text(_) => Kinds::TEXT,
            AxisValue::List(_) => Kinds::TEXTS,
        }
    }

    #[must_use]
    pub fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(Kinds::NUMBER, "a number"), (Kinds::TEXT, "text"), (Kinds::TRUTH, "true or false"), (Kinds::TEXTS, "a list of texts")];
        let words: Vec<&str> = words.into_iter().filter(|(kind, _)| self.meets(*kind)).map(|(_, word)| word).collect();
        f.write_str(&words.join(" or "))
    }
}

impl Expression {
    /// Names that it uses with their places, in its order, with repeats.
    #[must_use]
    pub fn names(&self) -> Vec<(&str, Range<usize>)> {
        let mut names = Vec::new();
        self.root.each(&mut |node| {
            if let Kind::Name(name) = &node.kind {
                names.push((name.as_str(), node.at.clone()));
            }
        });
        names
    }

    /// Names with the texts that they are asked to be equal to, and where these stand.
    #[must_use]
    pub fn compared_texts(&self) -> Vec<(&str, &str, Range<usize>)> {
        let mut found = Vec::new();
        self.root.each(&mut |node| match &node.kind {
            Kind::Compare(first, rest) => {
                let left = std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node));
                found.extend(left.zip(rest).flat_map(|(left, (_, right))| [(left, right), (right, left)]));
            }
            Kind::In { value, list, .. } => found.extend(list.iter().map(|item| (&**value, item))),
            _ => {}
        });
        let texts = found.into_iter().filter_map(|(name, text)| match (&name.kind, &text.kind) {
            (Kind::Name(name), Kind::Value(AxisValue::Text(value))) => Some((name.as_str(), value.as_str(), text.at.clone())),
            _ => None,
        });
        texts.collect()
    }

    /// Checks that what is compared can be compared, and that the whole is true or false.
    ///
    /// # Errors
    /// The first place that never has an answer.
    pub fn check(&self, kinds_of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        self.root.needs(Kinds::TRUTH, "a condition is", kinds_of)
    }
}

impl Node {
    fn each<'n>(&'n self, visit: &mut dyn FnMut(&'n Node)) {
        visit(self);
        match &self.kind {
            Kind::Value(_) | Kind::Name(_) => {}
            Kind::Not(inner) | Kind::Negative(inner) => inner.each(visit),
            Kind::And(all) | Kind::Or(all) => all.iter().for_each(|node| node.each(visit)),
            Kind::Compare(first, rest) => {
                first.each(visit);
                rest.iter().for_each(|(_, node)| node.each(visit));
            }
            Kind::In { value, list, .. } => {
                value.each(visit);
                list.iter().for_each(|node| node.each(visit));
            }
            Kind::Arithmetic(left, _, right) => {
                left.each(visit);
                right.each(visit);
            }
        }
    }

    /// Which kinds of values it may give; a fault where it can give none.
    fn kinds(&self, of: &dyn Fn(&str) -> Kinds) -> Result<Kinds, Fault> {
        match &self.kind {
            Kind::Value(value) => Ok(Kinds::of(value)),
            Kind::Name(name) => Ok(of(name)),
            Kind::Not(inner) => inner.needs(Kinds::TRUTH, "`not` takes", of).map(|()| Kinds::TRUTH),
            Kind::And(all) | Kind::Or(all) => {
                let word = if matches!(self.kind, Kind::And(_)) { "`and` takes" } else { "`or` takes" };
                all.iter().try_for_each(|node| node.needs(Kinds::TRUTH, word, of)).map(|()| Kinds::TRUTH)
            }
            Kind::Compare(first, rest) => {
                let left = std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node));
                for (left, (comparison, right)) in left.zip(rest) {
                    if matches!(comparison, Comparison::Equal | Comparison::Unequal) {
                        left.may_equal(right, of)?;
                    } else {
                        left.needs(Kinds::NUMBER, "only numbers are larger or smaller:", of)?;
                        right.needs(Kinds::NUMBER, "only numbers are larger or smaller:", of)?;
                    }
                }
                Ok(Kinds::TRUTH)
            }
            Kind::In { value, list, .. } => list.iter().try_for_each(|item| value.may_equal(item, of)).map(|()| Kinds::TRUTH),
            Kind::Arithmetic(left, _, right) => {
                left.needs(Kinds::NUMBER, "arithmetic takes", of)?;
                right.needs(Kinds::NUMBER, "arithmetic takes", of)?;
                Ok(Kinds::NUMBER)
            }
            Kind::Negative(inner) => inner.needs(Kinds::NUMBER, "arithmetic takes", of).map(|()| Kinds::NUMBER),
        }
    }

    fn needs(&self, wanted: Kinds, why: &str, of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        let kinds = self.kinds(of)?;
        if kinds.meets(wanted) {
            return Ok(());
        }
        Err(Fault { at: self.at.clone(), message: format!("{why} {wanted}, and this is {kinds}") })
    }

    fn may_equal(&self, other: &Node, of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        let (left, right) = (self.kinds(of)?, other.kinds(of)?);
        if left.meets(right) {
            return Ok(());
        }
        // The written value is the one to change.
        let (at, is, other) = if matches!(self.kind, Kind::Value(_)) { (&self.at, left, right) } else { (&other.at, right, left) };
        let quotes = match (is, other) {
            (Kinds::NUMBER | Kinds::TRUTH, Kinds::TEXT) => ": put it in quotes",
            (Kinds::TEXT, Kinds::NUMBER | Kinds::TRUTH) => ": leave the quotes out",
            _ => "",
        };
        Err(Fault { at: at.clone(), message: format!("this is {is}, and never equal to {other}{quotes}") })
    }
}
