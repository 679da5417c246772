"""Documents of office programs (DOCX, XLSX, PPTX), read from their XML in the sandbox.

Nothing but lxml is imported, since each file is read in a new process. Macros and embedded
programs are never looked at.
"""
