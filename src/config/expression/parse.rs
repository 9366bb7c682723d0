//! From text to the tree of an expression. The grammar and its reader are minijinja's; here its tree becomes ours, and what a condition
//! has no use for is refused.

use super::{Comparison, Expression, Fault, Kind, Node, Operator};
use crate::config::{
    diagnose::{nearest, tick},
    model::AxisValue,
};
use minijinja::{
    machinery::{ast, parse_expr},
    value::ValueKind,
};
use std::ops::Range;

/// Bytes of an expression.
const LONGEST: usize = 4000;

/// Levels of brackets, and links of a chain of arithmetic.
const DEEPEST: usize = 60;

const TOO_DEEP: &str = "too many levels of brackets, or links of one calculation";

/// Words between parts of an expression.
const WORDS: [&str; 4] = ["and", "or", "not", "in"];

impl Expression {
    /// Reads an expression. `names` may be written as they are, with what else they contain, as in `flags.-fa`.
    ///
    /// # Errors
    /// The first place that isn't understood.
    pub fn parse<'n>(source: &str, names: impl IntoIterator<Item = &'n str>) -> Result<Expression, Fault> {
        let names: Vec<&str> = names.into_iter().collect();
        if source.len() > LONGEST {
            return Err(Fault { at: 0..0, message: format!("the condition has more than {LONGEST} bytes") });
        }
        let text = plain_names(source, &names)?;
        let tree = parse_expr(&text).map_err(|error| syntax_fault(source, &error))?;
        let root = Translation { source }.node(&tree, DEEPEST)?;
        Ok(Expression { root })
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// The text with dashes of known names and of options as `_`, so that each is one name to the reader. Same length, so that places hold.
/// Signs that other languages use are told from those of this one.
fn plain_names(source: &str, names: &[&str]) -> Result<String, Fault> {
    let mut text = String::with_capacity(source.len());
    while let Some(c) = source[text.len()..].chars().next() {
        let at = text.len();
        let rest = &source[at..];
        let fault = |len: usize, message: &str| Err(Fault { at: at..at + len, message: message.to_owned() });
        if c == '"' || c == '\'' {
            let Some(len) = quoted(rest, c) else { return fault(rest.trim_end().len(), &format!("a text without the `{c}` at its end")) };
            text.push_str(&rest[..len]);
        } else if is_of_name(c) {
            let known = names.iter().filter(|name| rest.starts_with(**name) && !rest[name.len()..].starts_with(is_of_name));
            let len = known.map(|name| name.len()).max().unwrap_or_else(|| {
                let option = rest.starts_with("flags.");
                rest.find(|c| !(is_of_name(c) || option && c == '-')).unwrap_or(rest.len())
            });
            text.extend(rest[..len].chars().map(|c| if c == '-' { '_' } else { c }));
        } else if let Some(sign) = ["==", "!=", "<=", ">="].into_iter().find(|sign| rest.starts_with(sign)) {
            text.push_str(sign);
        } else {
            match c {
                '&' => return fault(rest.len() - rest.trim_start_matches('&').len(), "write `and`"),
                '|' if rest.starts_with("||") => return fault(2, "write `or`"),
                '|' => return fault(1, "functions and filters are not known here"),
                '=' => return fault(1, "write `==`"),
                '!' => return fault(1, "write `not`"),
                c if c.is_whitespace() || "<>()[],+-*/%".contains(c) => text.push(c),
                c => return fault(c.len_utf8(), "this character has no meaning here"),
            }
        }
    }
    Ok(text)
}

/// Bytes of a text in quotes.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// What the reader says, in the words of somebody who writes a campaign.
fn syntax_fault(source: &str, error: &minijinja::Error) -> Fault {
    let end = source.trim_end().len();
    let last = end - source[..end].chars().next_back().map_or(0, char::len_utf8);
    let at = error.range().filter(|at| at.start < end && source.get(at.clone()).is_some_and(|token| !token.trim().is_empty()));
    let said = error.detail().unwrap_or("it isn't understood");
    if said.contains("recursion") || said.contains("nest") {
        return Fault { at: 0..end, message: TOO_DEEP.to_owned() };
    }
    let Some(at) = at.filter(|_| !said.starts_with("unexpected end of input")) else {
        let is_operand = source[..end].ends_with(|c| is_of_name(c) || "'\")]".contains(c)) && !WORDS.iter().any(|word| source[..end].ends_with(word));
        let open = [('(', ')'), ('[', ']')].into_iter().find(|(open, close)| source.matches(*open).count() > source.matches(*close).count());
        let message = match open {
            Some((_, close)) if is_operand => format!("the closing `{close}` is missing"),
            _ => "a name, a number or a text in quotes is missing behind this".to_owned(),
        };
        return Fault { at: last..end, message };
    };
    // A number that goes on with letters comes in two pieces.
    let start = source[..at.start].trim_end_matches(is_of_name).len();
    if source[at.start..].starts_with(is_of_name) && start < at.start && source[start..].starts_with(|c: char| c.is_ascii_digit()) {
        let message = format!("{} is no number; texts stand in quotes", tick(&source[start..at.end]));
        return Fault { at: start..at.end, message };
    }
    let token = &source[at.clone()];
    let message = match token {
        _ if source[..at.start].matches('[').count() > source[..at.start].matches(']').count() => "a `,` or the closing `]` is missing".to_owned(),
        ")" | "]" => format!("{} without the bracket that opens it", tick(token)),
        _ if token.starts_with(is_of_name) || token.starts_with(['\'', '"']) => {
            let near = nearest(token, WORDS).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            format!("a comparison, `and` or `or` is missing in front of this{near}")
        }
        _ => said.to_owned(),
    };
    Fault { at, message }
}

/// Turns the reader's tree into ours.
struct Translation<'a> {
    source: &'a str,
}

impl Translation<'_> {
    fn node(&self, tree: &ast::Expr<'_>, depth: usize) -> Result<Node, Fault> {
        let at = self.place(tree);
        let refused = |message: &str| Err(Fault { at: at.clone(), message: message.to_owned() });
        let Some(depth) = depth.checked_sub(1) else { return refused(TOO_DEEP) };
        let node = |tree: &ast::Expr<'_>| self.node(tree, depth);
        let boxed = |tree: &ast::Expr<'_>| node(tree).map(Box::new);
        let kind = match tree {
            ast::Expr::Const(constant) => match value(&constant.value) {
                Some(value) => Kind::Value(value),
                None => return refused("this is no number, no text and neither true nor false"),
            },
            ast::Expr::Var(_) | ast::Expr::GetAttr(_) | ast::Expr::GetItem(_) => Kind::Name(self.name(tree)?),
            ast::Expr::UnaryOp(unary) => match unary.op {
                ast::UnaryOpKind::Not => match &unary.expr {
                    // `a not in [b]` comes as `not (a in [b])`.
                    ast::Expr::BinOp(inner) if matches!(inner.op, ast::BinOpKind::In) => self.list(&inner.left, &inner.right, false, depth)?,
                    inner => Kind::Not(boxed(inner)?),
                },
                ast::UnaryOpKind::Neg => Kind::Negative(boxed(&unary.expr)?),
            },
            ast::Expr::BinOp(binary) => {
                let (left, right) = (&binary.left, &binary.right);
                match binary.op {
                    ast::BinOpKind::ScAnd => Kind::And(self.joined(tree, depth)?),
                    ast::BinOpKind::ScOr => Kind::Or(self.joined(tree, depth)?),
                    ast::BinOpKind::In => self.list(left, right, true, depth)?,
                    ast::BinOpKind::Concat => return refused("texts can't be put together here"),
                    op => match (comparison(op), operator(op)) {
                        (Some(comparison), _) => Kind::Compare(boxed(left)?, vec![(comparison, node(right)?)]),
                        (_, Some(operator)) => Kind::Arithmetic(boxed(left)?, operator, boxed(right)?),
                        _ => return refused("this has no meaning in a condition"),
                    },
                }
            }
            ast::Expr::Compare(chain) => {
                let link = |link: &ast::CompareOp<'_>| match chained(link.op) {
                    Some(comparison) => Ok((comparison, node(&link.expr)?)),
                    None => Err(Fault { at: at.clone(), message: "`in` is no link of a chain: write two comparisons with `and`".to_owned() }),
                };
                Kind::Compare(boxed(&chain.expr)?, chain.ops.iter().map(link).collect::<Result<_, _>>()?)
            }
            ast::Expr::Filter(_) | ast::Expr::Test(_) | ast::Expr::Call(_) => return refused("functions and filters are not known here"),
            ast::Expr::List(_) | ast::Expr::Tuple(_) => return refused("a list stands behind `in`, like `threads in [1, 2]`"),
            ast::Expr::IfExpr(_) | ast::Expr::Slice(_) | ast::Expr::Map(_) => return refused("this has no meaning in a condition"),
        };
        Ok(Node { at, kind })
    }

    /// The parts of a chain of one word.
    fn joined(&self, tree: &ast::Expr<'_>, depth: usize) -> Result<Vec<Node>, Fault> {
        let ast::Expr::BinOp(outer) = tree else { return Ok(Vec::new()) };
        let is_and = matches!(outer.op, ast::BinOpKind::ScAnd);
        let mut parts = vec![&outer.right];
        let mut rest = &outer.left;
        while let ast::Expr::BinOp(inner) = rest
            && matches!((is_and, inner.op), (true, ast::BinOpKind::ScAnd) | (false, ast::BinOpKind::ScOr))
        {
            parts.push(&inner.right);
            rest = &inner.left;
        }
        parts.push(rest);
        parts.into_iter().rev().map(|part| self.node(part, depth)).collect()
    }

    fn list(&self, value: &ast::Expr<'_>, list: &ast::Expr<'_>, inside: bool, depth: usize) -> Result<Kind, Fault> {
        let ast::Expr::List(items) = list else {
            let message = "`in` takes a list in brackets, like `threads in [1, 2]`".to_owned();
            return Err(Fault { at: self.place(list), message });
        };
        let list = items.items.iter().map(|item| self.node(item, depth)).collect::<Result<_, _>>()?;
        Ok(Kind::In { value: Box::new(self.node(value, depth)?), list, inside })
    }

    /// `threads`, `device.logical_cpus`, `flags.-fa`, `flags["-fa"]`: as written in the source, where dashes are dashes.
    fn name(&self, tree: &ast::Expr<'_>) -> Result<String, Fault> {
        match tree {
            ast::Expr::GetItem(item) => {
                let key = if let ast::Expr::Const(key) = &item.subscript_expr { key.value.as_str().map(str::to_owned) } else { None };
                match key {
                    Some(key) => Ok(format!("{}.{key}", self.name(&item.expr)?)),
                    None => Err(Fault { at: self.place(tree), message: "this has no meaning in a condition".to_owned() }),
                }
            }
            ast::Expr::GetAttr(attribute) => {
                let end = self.place(tree).end;
                let written = self.source.get(end.saturating_sub(attribute.name.len())..end).unwrap_or(attribute.name);
                Ok(format!("{}.{written}", self.name(&attribute.expr)?))
            }
            ast::Expr::Var(variable) => Ok(self.source.get(self.place(tree)).unwrap_or(variable.id).to_owned()),
            _ => Err(Fault { at: self.place(tree), message: "this has no meaning in a condition".to_owned() }),
        }
    }

    fn place(&self, tree: &ast::Expr<'_>) -> Range<usize> {
        let span = tree.span();
        // An attribute's own span may begin at its dot.
        let start = match tree {
            ast::Expr::GetAttr(attribute) => self.place(&attribute.expr).start,
            ast::Expr::GetItem(item) => self.place(&item.expr).start,
            _ => span.start_offset as usize,
        };
        let end = span.end_offset as usize;
        let end = end.min(self.source.len());
        let start = start.min(end);
        if self.source.get(start..end).is_some() { start..end } else { 0..self.source.len() }
    }
}

fn value(value: &minijinja::Value) -> Option<AxisValue> {
    match value.kind() {
        ValueKind::Bool => Some(AxisValue::Bool(value.is_true())),
        ValueKind::String => value.as_str().map(|text| AxisValue::Text(text.to_owned())),
        ValueKind::Number if value.is_integer() => value.as_i64().map(AxisValue::Int),
        ValueKind::Number => f64::try_from(value.clone()).ok().filter(|value| value.is_finite()).map(AxisValue::Float),
        _ => None,
    }
}

fn comparison(op: ast::BinOpKind) -> Option<Comparison> {
    Some(match op {
        ast::BinOpKind::Eq => Comparison::Equal,
        ast::BinOpKind::Ne => Comparison::Unequal,
        ast::BinOpKind::Lt => Comparison::Less,
        ast::BinOpKind::Lte => Comparison::AtMost,
        ast::BinOpKind::Gt => Comparison::More,
        ast::BinOpKind::Gte => Comparison::AtLeast,
        _ => return None,
    })
}

fn chained(op: ast::CompareOpKind) -> Option<Comparison> {
    Some(match op {
        ast::CompareOpKind::Eq => Comparison::Equal,
        ast::CompareOpKind::Ne => Comparison::Unequal,
        ast::CompareOpKind::Lt => Comparison::Less,
        ast::CompareOpKind::Lte => Comparison::AtMost,
        ast::CompareOpKind::Gt => Comparison::More,
        ast::CompareOpKind::Gte => Comparison::AtLeast,
        ast::CompareOpKind::In | ast::CompareOpKind::NotIn => return None,
    })
}

fn operator(op: ast::BinOpKind) -> Option<Operator> {
    Some(match op {
        ast::BinOpKind::Add => Operator::Plus,
        ast::BinOpKind::Sub => Operator::Minus,
        ast::BinOpKind::Mul => Operator::Times,
        ast::BinOpKind::Div => Operator::Divide,
        ast::BinOpKind::FloorDiv => Operator::DivideWhole,
        ast::BinOpKind::Rem => Operator::Remainder,
        ast::BinOpKind::Pow => Operator::Power,
        _ => return None,
    })
}
