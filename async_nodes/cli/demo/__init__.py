"""The product's face: four tasks side by side, on real processes, in the terminal.

`tasks` says what is submitted, `view` what is known of it, `frame` and `plain` how that looks,
`report` what it comes to, `director` makes it happen.
"""
