//! Parses operators by precedence.

use super::error::Fault;
use super::parser::{Parser, node};
use super::scanner::scan;
use super::token::Token;
use super::tree::{Kind, Node, Operator};

/// Operators by precedence, lowest first.
const BINARY: [&[(&str, Operator)]; 3] = [
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
];

/// Parses an expression; see [`Expression::parse`](super::Expression::parse).
pub(super) fn parse(source: &str, variables: Option<&[&str]>) -> Result<Node, Fault> {
    let mut parser = Parser::new(scan(source)?, variables);
    if *parser.peek() == Token::End {
        return Err(Fault::new(0, "the expression is empty"));
    }
    let root = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

impl Parser<'_> {
    /// Parses a whole expression, at the top level or nested.
    pub(super) fn expression(&mut self) -> Result<Node, Fault> {
        self.enter()?;
        let condition = self.chain("||", Kind::Any, |this| this.chain("&&", Kind::All, |this| this.binary(0)))?;
        let at = self.at();
        let read = if self.takes("?") {
            let then = self.expression()?;
            self.expect(":")?;
            let other = self.expression()?;
            node(at, Kind::Conditional(Box::new(condition), Box::new(then), Box::new(other)))?
        } else {
            condition
        };
        self.leave();
        Ok(read)
    }

    /// Parses operands joined by the same operator: one level, regardless of their number.
    fn chain(
        &mut self,
        sign: &str,
        kind: fn(Vec<Node>) -> Kind,
        part: fn(&mut Self) -> Result<Node, Fault>,
    ) -> Result<Node, Fault> {
        let (first, at) = (part(self)?, self.at());
        if !self.takes(sign) {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while self.takes(sign) {
            parts.push(part(self)?);
        }
        node(at, kind(parts))
    }

    fn binary(&mut self, strength: usize) -> Result<Node, Fault> {
        let Some(operators) = BINARY.get(strength) else { return self.unary() };
        let mut left = self.binary(strength + 1)?;
        loop {
            let at = self.at();
            let operator = match self.peek() {
                Token::Sign(sign) => operators.iter().find(|(known, _)| known == sign).map(|(_, operator)| *operator),
                Token::Name("in") if strength == 0 => Some(Operator::In),
                _ => None,
            };
            let Some(operator) = operator else { return Ok(left) };
            self.take();
            let right = self.binary(strength + 1)?;
            left = node(at, Kind::Binary(operator, Box::new(left), Box::new(right)))?;
        }
    }

    /// Parses prefix operators. Pairs of the same operator cancel out.
    fn unary(&mut self) -> Result<Node, Fault> {
        let at = self.at();
        for (sign, kind) in [("!", Kind::Not as fn(Box<Node>) -> Kind), ("-", Kind::Negate)] {
            let mut count = 0;
            while self.takes(sign) {
                count += 1;
            }
            if count > 0 {
                if sign == "-" && count % 2 == 1 && matches!(self.peek(), Token::Int(_)) {
                    return self.negative(at);
                }
                let of = self.member()?;
                return if count % 2 == 0 { Ok(of) } else { node(at, kind(Box::new(of))) };
            }
        }
        self.member()
    }

    /// Parses a negative integer, because the smallest one has no positive counterpart.
    fn negative(&mut self, at: usize) -> Result<Node, Fault> {
        let Token::Int(whole) = self.take() else { return Err(self.unexpected("a number")) };
        let negative = 0_i64.checked_sub_unsigned(whole);
        let negative = negative.ok_or_else(|| Fault::new(at, "the number is out of range"))?;
        node(at, Kind::Int(negative))
    }
}
