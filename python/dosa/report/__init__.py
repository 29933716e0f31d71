# SPDX-License-Identifier: Apache-2.0
"""`python -m dosa.report -o DIR`: measure this machine and write a page about it.

`plan` says what is measured, `measure` runs it and keeps the raw results, `data` reads them back,
`sections` turns them into figures and tables (`charts` draws them), `page` and `summary` write the
files. Nothing behind `data` measures, so the page can be made again from the raw results alone.
"""
