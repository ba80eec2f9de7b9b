"""Measurements of the whole program. They print figures and assert nothing: figures belong to no test."""
